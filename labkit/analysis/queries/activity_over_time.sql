-- Where did the run spend its attention, minute by minute?
SELECT
  FLOOR(elapsed_seconds / 60.0) AS minute,
  phase,
  COUNT(*)                      AS events
FROM execution_logs
GROUP BY FLOOR(elapsed_seconds / 60.0), phase
ORDER BY minute NULLS LAST, phase NULLS LAST;
