-- How did the cost add up over the run?
SELECT
  FLOOR(elapsed_seconds / 60.0 * 100 + 0.5) / 100 AS minute,
  phase,
  SUM(cost_usd) OVER (ORDER BY id)                AS cost_cumulative_usd
FROM execution_logs
WHERE cost_usd IS NOT NULL
ORDER BY id;
