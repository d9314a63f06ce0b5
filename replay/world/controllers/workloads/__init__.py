"""The workload controllers, from Deployments to CronJobs: pods made, replaced, deleted, adopted."""
