-- The migration of tollgate-postgres: two tables and four functions. It can run again, and while limiters run.
--
-- A store is one row with an empty node, the bucket, and a row for each node:
--   bucket: numbers = level stamp part swept epoch busy was clock held nodes ends last_until
--           quota = amount period burst initial stepped version
--     (level: available tokens; below 0, tokens promised and not minted yet; clock: the total time for which the bucket
--     has minted, which does not step back; held, nodes: the sum of all allowances and the number of nodes; ends: when the
--     bucket may be deleted; last_until: no node is remembered for longer)
--   node:   numbers = number allowance until epoch once later behind part at
-- The numbers are tokens, or microseconds of the server's clock. A missing bucket is full, and no node holds anything.
CREATE TABLE IF NOT EXISTS tollgate (
  store bytea NOT NULL,
  node bytea NOT NULL,
  numbers bigint[] NOT NULL,
  quota bigint[],
  PRIMARY KEY (store, node)
) WITH (fillfactor = 50); -- updates find space on the same page, and leave the index alone

-- Answers one request. The rules are those of `SharedBucket` of the crate tollgate (src/distributed/bucket.rs), equal to
-- the integer. The lock of the bucket's row is held until the transaction ends, so each request should be one.
--
-- Returns the numbers of the answer, or a refusal: -1 and the tokens owed, -2 and the number of the later request, -3 and
-- the quota of the store.
CREATE OR REPLACE FUNCTION tollgate_ask_1(
  name bytea, id bytea, request bigint, leave boolean, at_once boolean, asked bigint[], ttl bigint, want bigint,
  ahead bigint, banked bigint, hold bigint, minimum bigint, held_still bigint, back bigint
) RETURNS bigint[] LANGUAGE plpgsql SET lock_timeout = '500ms' AS $$
DECLARE
  EPOCH_LENGTH constant bigint := 250000;
  IDLE constant bigint := 3600000000;
  LONGEST constant bigint := 4503599627370496;
  MOST_DEBT constant bigint := 4503599627370496;
  EXACT constant double precision := 9007199254740992;
  MARGIN constant double precision := 1 + 1 / 1125899906842624::double precision;
  bucket bigint[];
  has bigint[];
  mine bigint[];
  known boolean;
  now bigint;
  amount bigint; period bigint; burst bigint; stepped boolean;
  level bigint; stamp bigint; part bigint; swept bigint; epoch bigint; busy bigint; was bigint; clock bigint;
  held bigint; nodes bigint; last_until bigint;
  keeps bigint; last_end bigint; until bigint;
  most bigint; minted bigint; total bigint; this bigint; epochs bigint;
  rest double precision; owed double precision; to_part double precision;
  refused boolean := false;
  is_other boolean;
  before bigint := 0; had bigint := 0; seen bigint := -1; once bigint := 0; later bigint := 0; behind bigint := 0;
  phase bigint := 0; at bigint; others bigint; half bigint; fair bigint; more bigint; tokens bigint; keep bigint;
  answer bigint[];
BEGIN
  LOOP
    SELECT numbers, quota INTO bucket, has FROM tollgate WHERE store = name AND node = '' FOR UPDATE;
    EXIT WHEN FOUND;
    INSERT INTO tollgate VALUES (name, '', '{}', asked) ON CONFLICT DO NOTHING;
  END LOOP;
  -- Read under the lock, so that a later request has a later time.
  now := (extract(epoch FROM clock_timestamp()) * 1000000)::bigint;
  ttl := least(ttl, LONGEST);
  IF cardinality(bucket) = 0 OR bucket[11] < now THEN
    IF cardinality(bucket) > 0 THEN
      DELETE FROM tollgate WHERE store = name AND node <> '';
    END IF;
    has := asked;
    bucket := ARRAY[asked[4], now, 0, now, 0, 0, 0, 0, 0, 0, now, now];
  END IF;
  level := bucket[1]; stamp := bucket[2]; part := bucket[3]; swept := bucket[4]; epoch := bucket[5]; busy := bucket[6];
  was := bucket[7]; clock := bucket[8]; held := bucket[9]; nodes := bucket[10];
  -- An earlier release has written the row: a sweep finds out.
  last_until := coalesce(bucket[12], now);
  IF bucket[12] IS NULL THEN swept := 0; END IF;
  IF has[6] = asked[6] AND (has[1] <> asked[1] OR has[2] <> asked[2] OR has[3] <> asked[3] OR has[5] <> asked[5]) THEN
    RETURN -3::bigint || has;
  END IF;
  SELECT numbers INTO mine FROM tollgate WHERE store = name AND node = id;
  known := FOUND;
  IF known AND request < mine[1] THEN
    RETURN ARRAY[-2, mine[1]];
  END IF;

  -- Forgets the nodes that have reached the end of their time to live. Until then a node may use what it keeps, so the
  -- bucket has space for these tokens only from then on: it mints up to the last of these ends first. If the clock has
  -- stepped back, the ends step back with it: no node is forgotten sooner or later for that.
  keeps := held;
  IF nodes = 0 OR now >= swept + (ttl + 3) / 4 OR now < swept THEN
    last_until := now;
    IF nodes > 0 THEN
      IF now < swept THEN
        UPDATE tollgate SET numbers[3] = numbers[3] - (stamp - now) WHERE store = name AND node <> '';
      END IF;
      SELECT max(numbers[3]) INTO last_end FROM tollgate WHERE store = name AND node <> '' AND numbers[3] <= now;
      DELETE FROM tollgate WHERE store = name AND node <> '' AND numbers[3] <= now;
      SELECT coalesce(sum(numbers[2]), 0), count(*), coalesce(max(numbers[3]), now) INTO keeps, nodes, last_until
        FROM tollgate WHERE store = name AND node <> '';
      SELECT numbers INTO mine FROM tollgate WHERE store = name AND node = id;
      known := FOUND;
    END IF;
    swept := now;
  END IF;
  -- A node that leaves is not remembered.
  IF NOT leave OR nodes > 0 THEN last_until := greatest(last_until, now + ttl); END IF;

  -- Mints up to each of these instants: level + held never exceeds the burst. The fraction of a token is carried, unless
  -- the bucket was already full. If the clock has stepped back, time continues from there. More periods than fill the
  -- bucket are not counted, so that no product overflows.
  amount := has[1]; period := has[2]; burst := has[3]; stepped := has[5] = 1;
  FOR pass IN 1..2 LOOP
    CONTINUE WHEN pass = 1 AND (last_end IS NULL OR last_end <= stamp);
    IF pass = 1 THEN until := last_end; ELSE until := now; held := keeps; END IF;
    most := greatest(0, burst - held);
    IF stepped THEN
      minted := greatest(0, least(until / period - stamp / period, (burst - level) / amount + 2)) * amount;
      level := greatest(level, least(most, level + minted));
    ELSIF until > stamp THEN
      total := (until - stamp) % period * amount + part;
      minted := greatest(0, least((until - stamp) / period, (burst - level) / amount + 2)) * amount + total / period;
      part := total % period;
      IF level + minted > most OR (level + minted = most AND part >= amount) THEN part := 0; END IF;
      level := greatest(level, least(most, level + minted));
    ELSIF level >= most AND part >= amount THEN
      part := 0;
    END IF;
    clock := clock + greatest(0, until - stamp);
    stamp := until;
  END LOOP;

  -- A newer quota replaces that of the store. Tokens stay, as far as the new burst allows. Promised instants stay too: the
  -- debt becomes as many tokens as the new quota mints in the time in which the old one would have minted the debt.
  IF asked[6] > has[6] THEN
    IF asked[1] <> amount OR asked[2] <> period OR asked[5] <> has[5] THEN
      owed := -level;
      to_part := 0;
      IF level < 0 THEN
        IF stepped THEN
          rest := ceil(owed / amount) * period - now % period;
        ELSE
          rest := owed * period - part;
          rest := CASE WHEN rest > EXACT THEN ceil(rest / amount * MARGIN) ELSE ceil(rest / amount) END;
        END IF;
        IF asked[5] = 1 THEN
          owed := floor((rest + now % asked[2]) / asked[2]) * asked[1];
        ELSE
          owed := rest * asked[1];
          owed := CASE WHEN owed > EXACT THEN ceil(owed / asked[2] * MARGIN) ELSE ceil(owed / asked[2]) END;
          -- The part of a token by which the debt was rounded up, if that is exact.
          IF owed * asked[2] <= EXACT THEN to_part := owed * asked[2] - rest * asked[1]; END IF;
        END IF;
      ELSIF NOT stepped AND asked[5] = 0 THEN
        -- Two parts less than the doubles say, in case they were rounded up.
        to_part := greatest(0, floor(part * (asked[2]::double precision / period)) - 2);
      END IF;
      refused := owed > MOST_DEBT;
      IF NOT refused THEN
        level := -owed::bigint;
        part := to_part::bigint;
        -- A promise that is repeated would be read by the new rate.
        UPDATE tollgate SET numbers[6] = 0 WHERE store = name AND node <> '' AND numbers[6] <> 0;
        IF known THEN mine[6] := 0; END IF;
      END IF;
    END IF;
    IF NOT refused THEN
      has := asked;
      amount := has[1]; period := has[2]; burst := has[3]; stepped := has[5] = 1;
      most := greatest(burst - held, least(level, 0));
      IF level > most THEN level := most; part := 0; END IF;
    END IF;
  END IF;

  is_other := has[1] <> asked[1] OR has[2] <> asked[2] OR has[3] <> asked[3] OR has[5] <> asked[5];
  at := clock;
  IF known THEN
    before := mine[1]; had := mine[2]; seen := mine[4]; once := mine[5]; later := mine[6]; behind := mine[7];
    phase := mine[8]; at := mine[9];
  END IF;
  others := held - had;
  IF refused THEN
    NULL; -- A newer quota is not taken over: its debt could not be counted exactly.
  ELSIF known AND request = before THEN
    hold := had; -- The answer was lost: repeat it.
  ELSIF NOT at_once AND (want > 0 OR ahead > 0) AND level - want < -MOST_DEBT THEN
    refused := true; -- A larger debt could not be counted exactly. What was swept and minted is kept.
  ELSE
    IF known THEN
      -- Returned tokens must have been held and be held no more. While the bucket owes tokens, they are lost.
      IF level >= 0 THEN level := level + greatest(0, least(back, had - held_still)); END IF;
    ELSE
      nodes := nodes + 1;
      held_still := 0;
    END IF;
    -- A request for tokens at once gets all of them or none.
    -- The numbers of other requests depend on the quota: a node that has chosen them by an older one asks anew when it knows
    -- the newer one.
    IF at_once AND level < want OR NOT at_once AND is_other THEN want := 0; ahead := 0; END IF;
    -- The node's allowance: a fair part of half of the burst, or the cost that a caller was denied.
    half := burst / 2;
    fair := greatest(1, burst / (2 * (nodes + 1)));
    hold := greatest(held_still, least(greatest(least(hold, fair), minimum), half - others));
    more := greatest(0, least(ahead, hold - banked));
    IF want = 0 THEN more := least(more, greatest(level, minimum, 0)); END IF;
    tokens := want + more;
    -- The allowance is no larger than the tokens there are to keep.
    hold := greatest(held_still, least(hold, banked + more));
    once := greatest(0, least(level, tokens));
    later := tokens - once;
    behind := greatest(0, -level);
    phase := CASE WHEN stepped THEN now % period ELSE part END;
    at := clock;
    level := level - tokens;
    most := greatest(burst - others - hold, least(level, 0));
    IF level > most THEN
      level := most;
      part := 0;
    END IF;
    -- Counts the nodes with waiters, in each epoch anew. While the bucket owes tokens, each node with waiters asks again
    -- before its own have come. So an epoch lasts until what was owed before this request has been minted, and all of them
    -- are counted in it, however far from the store they are.
    this := now / EPOCH_LENGTH;
    epochs := 1 + (least(ceil(behind::double precision / amount) * period, LONGEST)::bigint + EPOCH_LENGTH / 2)
      / EPOCH_LENGTH;
    IF this < epoch OR this >= epoch + epochs THEN
      was := CASE WHEN this >= epoch AND this < epoch + 2 * epochs THEN busy ELSE 0 END;
      busy := 0;
      epoch := this;
    END IF;
    IF want > 0 AND NOT at_once AND seen <> epoch THEN
      busy := busy + 1;
      seen := epoch;
    END IF;
  END IF;

  IF refused THEN
    NULL; -- The node stays as it was.
  ELSIF leave THEN
    IF known THEN DELETE FROM tollgate WHERE store = name AND node = id; END IF;
    held := others;
    nodes := nodes - 1;
    hold := 0;
  ELSE
    held := others + hold;
    mine := ARRAY[request, hold, now + ttl, seen, once, later, behind, phase, at];
    IF known THEN
      UPDATE tollgate SET numbers = mine WHERE store = name AND node = id;
    ELSE
      INSERT INTO tollgate VALUES (name, id, mine);
    END IF;
  END IF;
  -- A bucket that is full, with no allowances left, equals a missing one: it may be deleted at that time. A bucket that
  -- would not begin full is kept for one hour longer. The node whose time to live ends last need not be the one that
  -- asks.
  keep := least(ceil(greatest(0, burst - level)::double precision / amount) * period, LONGEST)::bigint;
  keep := greatest(keep + CASE WHEN has[4] < burst THEN IDLE ELSE 0 END,
    last_until - now + least(ceil(least(held, burst)::double precision / amount) * period, LONGEST)::bigint);
  keep := least(keep, LONGEST);
  UPDATE tollgate SET quota = has, numbers = ARRAY[
    level, stamp, part, swept, epoch, busy, was, clock, held, nodes, now + ((keep + 999) / 1000 + 1) * 1000,
    last_until
  ] WHERE store = name AND node = '';

  IF refused THEN
    RETURN ARRAY[-1, greatest(0, -level)];
  END IF;
  answer := ARRAY[before, clock - at, once, later, behind, phase, hold, nodes, greatest(1, busy, was), greatest(0, level)];
  IF is_other THEN
    answer := answer || has;
  END IF;
  RETURN answer;
END $$;

-- Deletes the stores that may be forgotten, at most `most_stores` of them, and returns how many it has deleted.
CREATE OR REPLACE FUNCTION tollgate_sweep_1(most_stores bigint) RETURNS bigint LANGUAGE sql AS $$
  WITH ended AS (
    SELECT store, node FROM tollgate
    WHERE node = '' AND numbers[11] < (extract(epoch FROM clock_timestamp()) * 1000000)::bigint
    LIMIT most_stores FOR UPDATE SKIP LOCKED
  ), buckets AS (
    DELETE FROM tollgate USING ended WHERE tollgate.store = ended.store AND tollgate.node = ended.node
    RETURNING tollgate.store
  ), nodes AS (
    DELETE FROM tollgate USING ended WHERE tollgate.store = ended.store AND tollgate.node <> ''
  )
  SELECT count(*) FROM buckets
$$;

-- What the classes of limiters need. A store has one row for each node with classes in which claims wait:
--   until: when its report ends; reported: when it came; classes = class parent weight heavy light millis, for each class
-- Class and parent are the bits of unsigned numbers. No token depends on any of this.
CREATE TABLE IF NOT EXISTS tollgate_classes (
  store bytea NOT NULL,
  node bytea NOT NULL,
  until bigint NOT NULL,
  reported bigint NOT NULL,
  classes bigint[] NOT NULL,
  PRIMARY KEY (store, node)
) WITH (fillfactor = 50);

-- Replaces the report of a node, and returns the sums over all nodes, in the form of a report. The rules are those of
-- `SharedDemand` (src/distributed/shared_demand.rs).
CREATE OR REPLACE FUNCTION tollgate_classes_1(name bytea, id bytea, ttl bigint, report bigint[]) RETURNS bigint[]
LANGUAGE plpgsql SET lock_timeout = '500ms' AS $$
DECLARE
  LONGEST constant bigint := 60000000;
  now bigint := (extract(epoch FROM clock_timestamp()) * 1000000)::bigint;
BEGIN
  -- A report that counts for much longer than any can is from before the clock has stepped back.
  DELETE FROM tollgate_classes
    WHERE store = name AND (until <= now OR until > now + 2 * LONGEST OR node = id AND cardinality(report) = 0);
  IF cardinality(report) > 0 THEN
    INSERT INTO tollgate_classes VALUES (name, id, now + least(ttl, LONGEST), now, report)
      ON CONFLICT (store, node) DO UPDATE
      SET until = excluded.until, reported = excluded.reported, classes = excluded.classes;
  END IF;
  RETURN ARRAY(
    SELECT number FROM (
      SELECT classes[at] AS class,
        (array_agg(classes[at + 1] ORDER BY reported DESC))[1] AS parent,
        (array_agg(classes[at + 2] ORDER BY reported DESC))[1] AS weight,
        sum(classes[at + 3])::bigint AS heavy, sum(classes[at + 4])::bigint AS light, sum(classes[at + 5])::bigint AS millis
      FROM tollgate_classes, generate_series(1, cardinality(classes), 6) AS at
      WHERE store = name GROUP BY classes[at] ORDER BY classes[at] LIMIT 128
    ) AS sums, unnest(ARRAY[class, parent, weight, heavy, light, millis]) WITH ORDINALITY AS one(number, place)
    ORDER BY class, place);
END $$;

-- Deletes the reports that ended, of all stores.
CREATE OR REPLACE FUNCTION tollgate_sweep_classes_1() RETURNS bigint LANGUAGE sql AS $$
  WITH gone AS (
    DELETE FROM tollgate_classes WHERE until < (extract(epoch FROM clock_timestamp()) * 1000000)::bigint RETURNING 1
  )
  SELECT count(*) FROM gone
$$;
