-- How many tokens did each phase take, and how many of its prompt tokens were cached?
SELECT
  phase,
  SUM(COALESCE(prompt_tokens, 0))     AS prompt,
  SUM(COALESCE(completion_tokens, 0)) AS completion,
  SUM(COALESCE(cached_tokens, 0))     AS cached
FROM execution_logs
GROUP BY phase
ORDER BY MIN(elapsed_seconds) NULLS LAST, MIN(id);
