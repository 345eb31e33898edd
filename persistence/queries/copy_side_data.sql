-- Copies side data of the store: partition, name, content.
INSERT INTO side_data (partition, name, content)
VALUES (%s, %s, %s)
ON CONFLICT (partition, name) DO UPDATE SET content = excluded.content, copied_at = now();
