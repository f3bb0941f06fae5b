-- The ledger, version 2: the gateway's reference belongs to one payment, so another one that has it is found at once.

CREATE INDEX attempt_reference ON batchpay.attempt (gateway_reference) WHERE gateway_reference IS NOT NULL;

-- A group of a run, as `commit_group`, in whose accepted rows no reference is that of another row of the environment.
-- One that was masked or cut may be that of several payments.
--   BP007 an accepted row has the reference of another row
CREATE FUNCTION batchpay.commit_unique_group(
    p_run integer, p_token bytea, p_generation integer, p_batch integer,
    p_intents integer[], p_rows integer[], p_states smallint[], p_statuses integer[], p_codes text[],
    p_messages text[], p_references text[], p_reasons text[], p_seals bytea[],
    p_at bigint, p_number bigint, p_who text, p_detail text, p_mac bytea
) RETURNS bigint[] LANGUAGE plpgsql
SET enable_seqscan = off SET plan_cache_mode = force_generic_plan SET search_path = pg_catalog, pg_temp
AS $$
BEGIN
    -- A subquery with a limit can't be turned into a join, which without statistics read every attempt so far.
    IF EXISTS (
        SELECT FROM unnest(p_rows, p_states, p_references) AS o (row, state, reference)
            WHERE o.state = 5 AND o.reference NOT LIKE '%****%' AND o.reference NOT LIKE '%…' AND (
                SELECT true FROM batchpay.attempt a
                    WHERE a.gateway_reference = o.reference AND (a.batch, a.row) <> (p_batch, o.row)
                        AND (SELECT b.environment FROM batchpay.batch b WHERE b.id = a.batch)
                            = (SELECT b.environment FROM batchpay.batch b WHERE b.id = p_batch)
                    LIMIT 1)
    ) THEN
        RAISE EXCEPTION 'repeated' USING ERRCODE = 'BP007';
    END IF;
    RETURN batchpay.commit_group(p_run, p_token, p_generation, p_batch, p_intents, p_rows, p_states, p_statuses,
        p_codes, p_messages, p_references, p_reasons, p_seals, p_at, p_number, p_who, p_detail, p_mac);
END $$;

REVOKE ALL ON FUNCTION batchpay.commit_unique_group FROM PUBLIC;
GRANT EXECUTE ON FUNCTION batchpay.commit_unique_group TO batchpay_app;

-- Each run takes the rate divided by the runs that send. What is left of `pace` is until when a gateway asked one of
-- them to wait: nobody may send before `free_at`.
DROP FUNCTION batchpay.lease_pace;
DROP TABLE batchpay.pacer;
