"""What tuning methods share: costs by kind of configuration, searches, shards, projections. For methods/ alone."""
