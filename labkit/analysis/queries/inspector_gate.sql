-- What did the gate decide, over every gated event?
SELECT
  guard_status,
  COUNT(*) AS n
FROM execution_logs
WHERE guard_status IS NOT NULL
GROUP BY guard_status
ORDER BY n DESC, guard_status;
