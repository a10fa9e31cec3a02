-- What did the Worker write, by kind of file?
SELECT
  file_type,
  COUNT(*) AS files
FROM file_registry
GROUP BY file_type
ORDER BY files DESC, file_type NULLS LAST;
