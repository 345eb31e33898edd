-- The formats in which the stores of all partitions were last written, packed.
SELECT content FROM side_data WHERE name = 'format';
