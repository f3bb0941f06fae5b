"""Benchmarks: batchpay beside what a user would otherwise pick, as ratios of one run on one machine."""
