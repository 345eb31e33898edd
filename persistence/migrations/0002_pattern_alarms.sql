-- What operators were told of each way to die, so that many monitors tell it once. What is known already is not news.
ALTER TABLE dead_letter_patterns ADD COLUMN told_count bigint NOT NULL DEFAULT 0;
UPDATE dead_letter_patterns SET told_count = death_count;
