"""A process's copies of objects, kept current by watches: those that carry its shard's label, or all."""
