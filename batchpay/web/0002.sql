-- A link by which a person enrolls, once: only its token's SHA-256 is kept, and the new code's secret, sealed.
-- Who changes their own sign-in stays confirmed, by whom they were.
CREATE TABLE invitation (
    person TEXT PRIMARY KEY, mark BLOB NOT NULL UNIQUE, made_at REAL NOT NULL, with_code INTEGER NOT NULL, secret BLOB,
    confirmed_by TEXT
) STRICT;

-- When a person chose their password, NULL for whoever has not yet; who confirmed that it was they, and when somebody
-- last did: this one stays when they enroll anew.
ALTER TABLE user ADD COLUMN enrolled_at REAL;
ALTER TABLE user ADD COLUMN confirmed_by TEXT;
ALTER TABLE user ADD COLUMN confirmed_at REAL;
UPDATE user SET enrolled_at = made_at, confirmed_by = 'batchpay', confirmed_at = made_at;

-- The SHA-256 of a secret that a page's script keeps beside a session, where the cookie alone would reach other ports.
ALTER TABLE session ADD COLUMN page BLOB;

-- When a finished file was put away from the list, until it moves on.
ALTER TABLE file ADD COLUMN archived_at REAL;
