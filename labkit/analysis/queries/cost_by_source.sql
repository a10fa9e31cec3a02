-- What did the calls of the models cost, and how much of that is billed and how much an estimate?
-- billed: the provider stated it. price table: it did not, and tokens were counted at the run's prices. free: refused,
-- or nobody was reached. unknown: it may have cost something; counts as 0 here and with its worst case in the budget.
-- not recorded: a record of an earlier kit. Every attempt counts, as in the summary's api_requests.
SELECT
  purpose,
  CASE WHEN cost_usd IS NULL THEN 'unknown' ELSE COALESCE(cost_source, 'not recorded') END AS source,
  COUNT(*)                   AS attempts,
  SUM(COALESCE(cost_usd, 0)) AS cost_usd
FROM api_requests
GROUP BY 1, 2
ORDER BY 1 NULLS LAST, 2;
