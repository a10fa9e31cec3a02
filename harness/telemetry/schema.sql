-- The run's record. The first three tables keep the reference run's columns exactly
-- (a test holds them); anything we add goes into tables of its own below them.

CREATE TABLE IF NOT EXISTS execution_logs (
    id INTEGER PRIMARY KEY AUTOINCREMENT,
    step_number INTEGER,
    timestamp DATETIME DEFAULT CURRENT_TIMESTAMP,
    elapsed_seconds REAL,
    phase TEXT,              -- EXPLORATION | DEVELOPMENT | SYNTHESIS | FINAL_REPORT
    event_type TEXT,         -- a word from telemetry/events.py
    tool_name TEXT,
    command_or_input TEXT,
    sanitized_output TEXT,
    guard_status TEXT,       -- ALLOW | BLOCK | BYPASS | (null)
    guard_reason TEXT,
    prompt_tokens INTEGER,   -- tokens and cost of a model call stand on exactly one row
    completion_tokens INTEGER,
    cached_tokens INTEGER,   -- a subset of prompt_tokens
    cost_usd REAL            -- as in api_requests, which says where it is from; NULL means unknown, not free
);

CREATE TABLE IF NOT EXISTS file_registry (
    id INTEGER PRIMARY KEY AUTOINCREMENT,
    timestamp DATETIME DEFAULT CURRENT_TIMESTAMP,
    file_path TEXT UNIQUE,   -- relative to the workspace
    file_type TEXT,          -- SCRATCHPAD | SCRIPT | MASTER_SUMMARY
    version INTEGER DEFAULT 1
);

CREATE TABLE IF NOT EXISTS session_state (
    key TEXT PRIMARY KEY,
    value TEXT,
    updated_at DATETIME DEFAULT CURRENT_TIMESTAMP
);

-- Ours. One row an attempt to reach a model, failed ones included. cost_source tells where cost_usd is from:
-- billed (the provider stated it) | price table (it did not: tokens at the run's prices) | free (refused, or nobody
-- was reached) | NULL (unknown, or recorded before there was this column). What is added to a table stands at its
-- end, without a comment: an earlier run's table gets it there when it is opened again.
CREATE TABLE IF NOT EXISTS api_requests (
    id INTEGER PRIMARY KEY AUTOINCREMENT,
    timestamp DATETIME DEFAULT CURRENT_TIMESTAMP,
    step_number INTEGER,
    purpose TEXT,            -- worker | inspector | digest | report
    attempt INTEGER,
    model TEXT,
    status TEXT,             -- ok | the class of the failure | what the gateway ended the run with
    detail TEXT,
    finish_reason TEXT,
    prompt_tokens INTEGER,
    completion_tokens INTEGER,
    cached_tokens INTEGER,
    reasoning_tokens INTEGER, -- a subset of completion_tokens
    cost_usd REAL,           -- NULL: unknown
    latency_seconds REAL,
    cost_source TEXT
);

-- Ours. The exact bytes each model was given, once a run.
CREATE TABLE IF NOT EXISTS prompts (
    name TEXT PRIMARY KEY,   -- worker | inspector | digest
    content TEXT,
    sha256 TEXT
);

-- Ours. Every file that stood in notes/ or scripts/ at the end of a step (the first 20,000 of them).
CREATE TABLE IF NOT EXISTS workspace_files (
    path TEXT PRIMARY KEY,   -- relative to the workspace
    size INTEGER,            -- bytes when it was first seen closed; NULL while a process was still writing it
    sha256 TEXT,             -- of these bytes; NULL above 64 MB
    first_step INTEGER,      -- at the end of which it was there
    last_step INTEGER,       -- the last at the end of which it was known to be there
    lost TEXT                -- NULL | gone | shortened | changed (more at its end is no loss)
);
