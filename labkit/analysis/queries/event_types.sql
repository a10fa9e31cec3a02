-- What kinds of events make up the record?
SELECT
  event_type,
  COUNT(*) AS n
FROM execution_logs
GROUP BY event_type
ORDER BY n DESC, event_type NULLS LAST;
