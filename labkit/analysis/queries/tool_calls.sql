-- Which tools did the Worker reach for, and how often?
SELECT
  tool_name,
  COUNT(*) AS calls
FROM execution_logs
WHERE event_type = 'TOOL_CALL' AND tool_name IS NOT NULL
GROUP BY tool_name
ORDER BY calls DESC, tool_name;
