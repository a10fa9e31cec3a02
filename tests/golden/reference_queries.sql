SELECT
  CAST(elapsed_seconds/60 AS INT)  AS minute,
  phase,
  COUNT(*)                          AS events
FROM execution_logs
GROUP BY minute, phase
ORDER BY minute;

SELECT
  ROUND(elapsed_seconds/60.0, 2) AS minute,
  phase,
  SUM(COALESCE(cost_usd,0)) OVER (ORDER BY id) AS cost_cumulative_usd
FROM execution_logs
WHERE cost_usd IS NOT NULL
ORDER BY id;

SELECT
  phase,
  SUM(COALESCE(prompt_tokens,0))     AS prompt,
  SUM(COALESCE(completion_tokens,0)) AS completion,
  SUM(COALESCE(cached_tokens,0))     AS cached
FROM execution_logs
GROUP BY phase
ORDER BY MIN(elapsed_seconds);

SELECT
  guard_status,
  COUNT(*) AS n
FROM execution_logs
WHERE guard_status IS NOT NULL
GROUP BY guard_status
ORDER BY n DESC;

SELECT
  tool_name,
  COUNT(*) AS calls
FROM execution_logs
WHERE event_type = 'TOOL_CALL' AND tool_name IS NOT NULL
GROUP BY tool_name
ORDER BY calls DESC;

SELECT
  event_type,
  COUNT(*) AS n
FROM execution_logs
GROUP BY event_type
ORDER BY n DESC;

SELECT
  file_type,
  COUNT(*) AS files
FROM file_registry
GROUP BY file_type
ORDER BY files DESC;
