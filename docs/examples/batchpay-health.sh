#!/bin/sh
# Runs `batchpay health`, prints what is wrong, and writes the exit code as a metric for node_exporter.
umask 022
metrics=/var/lib/batchpay/metrics/batchpay-health.prom
# The timer sends from Monday to Friday: a file of Friday may wait until Monday.
case $(date +%u) in 6 | 7 | 1) BATCHPAY_INBOX_AGE=74h ;; *) BATCHPAY_INBOX_AGE=26h ;; esac
export BATCHPAY_INBOX_AGE
/opt/batchpay/bin/batchpay health --config /etc/batchpay/batchpay.toml --inbox /srv/payments/inbox --expect-every 26h --backup-every 2d --quiet
code=$?
printf 'batchpay_health_exit_code %d\nbatchpay_health_timestamp_seconds %d\n' "$code" "$(date +%s)" >"$metrics.tmp" && mv "$metrics.tmp" "$metrics"
exit "$code"
