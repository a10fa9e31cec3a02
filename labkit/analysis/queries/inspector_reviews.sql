-- What did the Inspector decide, review by review?
-- Counts what the run summary counts as inspector_reviews and inspector_blocks. A review to which no verdict came is
-- a BLOCK whose reason begins with "no verdict".
SELECT
  guard_status,
  COUNT(*) AS n,
  SUM(CASE WHEN guard_reason LIKE 'no verdict%' THEN 1 ELSE 0 END) AS without_verdict
FROM execution_logs
WHERE event_type = 'INSPECTOR_DECISION'
GROUP BY guard_status
ORDER BY n DESC, guard_status NULLS LAST;
