-- Which guard status do the events carry?
-- Every event counts, as in the reference run. A reviewed item is therefore two rows or more: what the Inspector
-- decided (INSPECTOR_DECISION; one for a command and one for its output), and what the Worker got (TOOL_RESULT).
-- BYPASS: nothing external in it. How many reviews there were, and blocks: the question inspector_reviews.
SELECT
  guard_status,
  COUNT(*) AS n
FROM execution_logs
WHERE guard_status IS NOT NULL
GROUP BY guard_status
ORDER BY n DESC, guard_status;
