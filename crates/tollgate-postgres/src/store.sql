-- The migration of tollgate-postgres: two tables and five functions. It can run again, and while limiters run.
--
-- A store is one row with an empty node, the bucket, and a row for each node:
--   bucket: numbers = level stamp part swept epoch busy was clock placed fill held nodes last_until ends last credit void,
--           and from and to of each promise that was returned
--           quota = amount period burst initial stepped version
--   node:   numbers = number allowance until epoch granted promised queued_before part at last first since expected grace
-- The numbers are tokens, or microseconds of the server's clock. A missing bucket is full, and no node holds anything.
CREATE TABLE IF NOT EXISTS tollgate (
  store bytea NOT NULL,
  node bytea NOT NULL,
  numbers bigint[] NOT NULL,
  quota bigint[],
  PRIMARY KEY (store, node)
) WITH (fillfactor = 50); -- updates find space on the same page, and leave the index alone

-- Forgets the returned promises that have no tokens any more: those of a list of from and to.
CREATE OR REPLACE FUNCTION tollgate_compact_1(returned bigint[]) RETURNS bigint[] LANGUAGE plpgsql IMMUTABLE AS $$
DECLARE
  kept bigint[] := '{}';
BEGIN
  FOR i IN 1..cardinality(returned) BY 2 LOOP
    IF returned[i] < returned[i + 1] THEN kept := kept || returned[i:i + 1]; END IF;
  END LOOP;
  RETURN kept;
END $$;

-- Answers one request. The rules and the names are those of `SharedBucket` of the crate tollgate
-- (src/distributed/bucket.rs), which explains them, equal to the integer. The lock of the bucket's row is held until the
-- transaction ends, so each request should be one.
--
-- ask = number ttl want first age useful rtt back unused last rest ahead banked allowance minimum held
--
-- Returns the numbers of the answer, or a refusal: -1 and the tokens owed, -2 and the number of the later request, -3 and
-- the quota of the store.
CREATE OR REPLACE FUNCTION tollgate_ask_1(
  name bytea, id bytea, leave boolean, at_once boolean, asked bigint[], ask bigint[]
) RETURNS bigint[] LANGUAGE plpgsql SET lock_timeout = '500ms' AS $$
DECLARE
  EPOCH_LENGTH constant bigint := 250000;
  HORIZON constant bigint := 250000;
  LONGEST_HORIZON constant bigint := 1000000;
  SHORT_GRACE constant bigint := 100000;
  SLEEP constant bigint := 2000000;
  MOST_PLACES constant bigint := 1000;
  MOST_RETURNED constant bigint := 8;
  SLACK constant bigint := 100;
  LAST_NUMBER constant bigint := 4503599627370496;
  IDLE constant bigint := 3600000000;
  LONGEST constant bigint := 4503599627370496;
  MAX_DEBT constant bigint := 4503599627370496;
  EXACT constant double precision := 9007199254740992;
  MARGIN constant double precision := 1 + 1 / 1125899906842624::double precision;
  number bigint := ask[1]; ttl bigint := least(ask[2], LONGEST); want bigint := ask[3]; first bigint := ask[4];
  age bigint := least(ask[5], LONGEST); useful bigint := ask[6]; rtt bigint := ask[7]; back bigint := ask[8];
  unused bigint := ask[9]; its_last bigint := ask[10]; its_rest bigint := ask[11]; ahead bigint := ask[12];
  banked bigint := ask[13]; allowance bigint := ask[14]; minimum bigint := ask[15]; keeps bigint := ask[16];
  bucket bigint[];
  has bigint[];
  mine bigint[];
  known boolean;
  is_repeat boolean;
  now bigint;
  amount bigint; period bigint; burst bigint; stepped boolean;
  level bigint; stamp bigint; part bigint; swept bigint; epoch bigint; busy bigint; was bigint; clock bigint;
  placed bigint; fill bigint; held bigint; nodes bigint; last_until bigint; last bigint; credit bigint; void bigint;
  returned bigint[]; from_ bigint; to_ bigint; came bigint; later bigint; all_there bigint; from_there bigint := 0;
  again integer; one_most bigint; promised_last bigint := 0; in_time bigint; debt bigint;
  held_then bigint; last_end bigint; until bigint;
  most bigint; minted bigint; total bigint; this bigint; epochs bigint;
  rest double precision; owed double precision; to_part double precision;
  refused boolean := false;
  is_other boolean;
  before bigint := 0; had bigint := 0; seen bigint := -1; granted bigint := 0; promised bigint := 0;
  queued_before bigint := 0; phase bigint := 0; at bigint;
  has_first bigint := 0; own_first bigint; since bigint := 0; expected bigint := 0; grace bigint := 0;
  reach bigint; places bigint := 0; placed_all bigint := 0; older bigint := 0; oldest bigint; oldest_first bigint;
  there bigint; span bigint; can bigint; given bigint := 0; wait bigint := 0; is_sent_away boolean;
  others bigint; half bigint; fair bigint; spare bigint; more bigint; tokens bigint; keep bigint;
  answer bigint[];
BEGIN
  LOOP
    SELECT numbers, quota INTO bucket, has FROM tollgate WHERE store = name AND node = '' FOR UPDATE;
    EXIT WHEN FOUND;
    INSERT INTO tollgate VALUES (name, '', '{}', asked) ON CONFLICT DO NOTHING;
  END LOOP;
  -- Read under the lock, so that a later request has a later time.
  now := (extract(epoch FROM clock_timestamp()) * 1000000)::bigint;
  -- Something else wrote the row.
  IF cardinality(bucket) <> 0 AND (cardinality(bucket) < 17 OR cardinality(bucket) % 2 = 0) OR array_position(bucket, NULL) IS NOT NULL OR cardinality(has) IS DISTINCT FROM 6
  THEN
    RETURN NULL;
  END IF;
  IF cardinality(bucket) = 0 OR bucket[14] < now THEN
    IF cardinality(bucket) > 0 THEN
      DELETE FROM tollgate WHERE store = name AND node <> '';
    END IF;
    has := asked;
    bucket := ARRAY[asked[4], now, 0, now, 0, 0, 0, 0, 0, 0, 0, 0, now, now, 0, 0, 0];
  END IF;
  level := bucket[1]; stamp := bucket[2]; part := bucket[3]; swept := bucket[4]; epoch := bucket[5]; busy := bucket[6];
  was := bucket[7]; clock := bucket[8]; placed := bucket[9]; fill := bucket[10]; held := bucket[11];
  nodes := bucket[12]; last_until := bucket[13]; last := bucket[15]; credit := bucket[16];
  void := bucket[17]; returned := bucket[18:];
  IF has[6] = asked[6] AND (has[1] <> asked[1] OR has[2] <> asked[2] OR has[3] <> asked[3] OR has[5] <> asked[5]) THEN
    RETURN -3::bigint || has;
  END IF;
  SELECT numbers INTO mine FROM tollgate WHERE store = name AND node = id;
  known := FOUND;
  IF known AND number < mine[1] THEN
    RETURN ARRAY[-2, mine[1]];
  END IF;

  -- Forgets the nodes that have reached the end of their time to live. Until then a node may use what it keeps, so the
  -- bucket has space for these tokens only from then on: it mints up to the last of these ends first. If the clock has
  -- stepped back, the ends step back with it: no node is forgotten sooner or later for that.
  held_then := held;
  IF nodes = 0 OR now >= swept + (ttl + 3) / 4 OR now < swept THEN
    last_until := now;
    IF nodes > 0 THEN
      IF now < swept THEN
        UPDATE tollgate SET numbers[3] = numbers[3] - (stamp - now) WHERE store = name AND node <> '';
      END IF;
      SELECT max(numbers[3]) INTO last_end FROM tollgate WHERE store = name AND node <> '' AND numbers[3] <= now;
      DELETE FROM tollgate WHERE store = name AND node <> '' AND numbers[3] <= now;
      SELECT coalesce(sum(numbers[2]), 0), count(*), coalesce(max(numbers[3]), now) INTO held_then, nodes, last_until
        FROM tollgate WHERE store = name AND node <> '';
      SELECT numbers INTO mine FROM tollgate WHERE store = name AND node = id;
      known := FOUND;
    END IF;
    swept := now;
  END IF;

  -- Mints up to each of these instants. The fraction of a token is carried, unless the bucket was already full. If the clock
  -- has stepped back, time continues from there. More periods than fill the bucket are not counted, so that no product
  -- overflows.
  amount := has[1]; period := has[2]; burst := has[3]; stepped := has[5] = 1;
  FOR pass IN 1..2 LOOP
    CONTINUE WHEN pass = 1 AND (last_end IS NULL OR last_end <= stamp);
    IF pass = 1 THEN until := last_end; ELSE until := now; held := held_then; END IF;
    most := greatest(burst - held, least(fill, burst), 0);
    minted := 0;
    total := part;
    IF stepped THEN
      minted := greatest(0, least(until / period - stamp / period, (burst - level) / amount + 2)) * amount;
    ELSIF until > stamp THEN
      total := (until - stamp) % period * amount + part;
      minted := greatest(0, least((until - stamp) / period, (burst - level) / amount + 2)) * amount + total / period;
      total := total % period;
      part := total;
    END IF;
    clock := clock + greatest(0, until - stamp);
    IF until < stamp THEN void := last; returned := '{}'; END IF;
    stamp := until;
    IF NOT stepped AND (level + minted > most OR level + minted = most AND total >= amount) THEN part := 0; END IF;
    IF minted > 0 THEN level := greatest(level, least(most, level + minted)); END IF;
    -- Returned promises whose tokens have come are there, as far as half of the burst less the allowances.
    IF cardinality(returned) > 0 THEN
      FOR i IN 1..cardinality(returned) BY 2 LOOP
        from_ := greatest(returned[i], least(returned[i + 1], last + least(level, 0)));
        credit := credit + from_ - returned[i];
        returned[i] := from_;
      END LOOP;
      returned := tollgate_compact_1(returned);
    END IF;
    IF credit > 0 THEN
      credit := greatest(0, least(credit, burst / 2 - held));
      IF level >= 0 THEN
        level := level + credit;
        credit := 0;
        IF level >= most THEN level := most; part := 0; END IF;
      END IF;
    END IF;
    IF last > LAST_NUMBER THEN
      last := -least(level, 0);
      void := 0;
      returned := '{}';
    END IF;
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
      refused := owed > MAX_DEBT;
      IF NOT refused THEN
        IF level < 0 THEN
          void := last;
          last := last + owed::bigint;
          returned := '{}';
          level := -owed::bigint;
        END IF;
        part := to_part::bigint;
        -- A promise that is repeated would be read by the new rate.
        UPDATE tollgate SET numbers[6] = 0 WHERE store = name AND node <> '' AND numbers[6] <> 0;
        IF known THEN mine[6] := 0; END IF;
      END IF;
    END IF;
    IF NOT refused THEN
      has := asked;
      amount := has[1]; period := has[2]; burst := has[3]; stepped := has[5] = 1;
      most := greatest(burst - held, least(fill, burst), 0);
      credit := greatest(0, least(credit, burst / 2 - held));
      IF level >= 0 THEN level := level + credit; credit := 0; END IF;
      IF level >= most THEN level := most; part := 0; END IF;
    END IF;
  END IF;

  is_other := has[1] <> asked[1] OR has[2] <> asked[2] OR has[3] <> asked[3] OR has[5] <> asked[5];
  at := clock;
  until := now + ttl;
  IF known THEN
    before := mine[1]; had := mine[2]; seen := mine[4]; granted := mine[5]; promised := mine[6];
    queued_before := mine[7]; phase := mine[8]; at := mine[9]; promised_last := mine[10]; has_first := mine[11];
    since := mine[12]; expected := mine[13]; grace := mine[14];
  END IF;
  is_repeat := known AND number = before;
  others := held - had;
  reach := greatest(HORIZON, least(LONGEST_HORIZON, rtt * 5 / 2));

  IF NOT refused THEN
    -- The places of other nodes, and those that are older than the first claim. A place further ahead than its longest sleep
    -- is void: the clock was set back.
    IF placed > 0 THEN
      SELECT count(*), coalesce(sum(one), 0), coalesce(sum(one) FILTER (WHERE its < now - age), 0), min(its),
          (array_agg(one ORDER BY its, one DESC))[1]
        INTO places, placed_all, older, oldest, oldest_first
        FROM (
          SELECT least(place.numbers[11], burst) AS one, place.numbers[12] AS its FROM tollgate AS place
          WHERE store = name AND node <> '' AND node <> id AND place.numbers[11] > 0
            AND now <= place.numbers[13] + place.numbers[14]
            AND place.numbers[13] <= now + greatest(SLEEP, (now - place.numbers[12]) / 2)
        ) AS all_places;
    END IF;
    -- What was saved up for a node that has not come, or whose claim has left, is not there any more.
    own_first := least(has_first, first);
    fill := CASE WHEN oldest IS NOT NULL
      AND (own_first = 0 OR oldest < since OR oldest = since AND oldest_first > own_first)
      THEN oldest_first ELSE own_first END;
    most := greatest(burst - held, least(fill, burst), 0);
    IF level >= most THEN level := most; part := 0; END IF;
    IF known AND NOT is_repeat THEN
      -- Returned promises: the last ones are not promised any more; those that have later ones behind them can be promised
      -- anew.
      IF unused > 0 THEN
        came := last + least(level, 0);
        tokens := least(its_last, last) - came;
        wait := 0;
        IF tokens > 0 THEN
          wait := tokens / amount * period + CASE
            WHEN stepped THEN CASE WHEN tokens % amount > 0 THEN period ELSE 0 END - stamp % period
            ELSE ceil((tokens % amount * period - part)::numeric / amount)::bigint END;
          wait := greatest(0, least(wait, LONGEST));
        END IF;
        IF its_last <= last AND its_last - unused >= void AND wait <= its_rest + SLACK THEN
          from_ := greatest(its_last - unused, came);
          to_ := greatest(its_last, came);
          back := back + unused - (to_ - from_);
          returned := ARRAY(
            SELECT value FROM (
              SELECT i, returned[i] AS a, returned[i + 1] AS b FROM generate_series(1, cardinality(returned), 2) AS i
              UNION ALL SELECT 0, from_, to_
            ) AS runs, unnest(ARRAY[a, b]) WITH ORDINALITY AS one(value, place) ORDER BY a, b, i, place);
        END IF;
        WHILE returned[cardinality(returned)] >= last LOOP
          from_ := returned[cardinality(returned) - 1];
          level := level + last - from_;
          last := from_;
          returned := returned[:cardinality(returned) - 2];
        END LOOP;
        returned := tollgate_compact_1(returned);
        IF cardinality(returned) > 2 * MOST_RETURNED THEN returned := returned[3:]; END IF;
      END IF;
      IF level < 0 THEN credit := credit + back; ELSE level := level + back; END IF;
      most := greatest(burst - others - keeps, least(fill, burst), 0);
      credit := greatest(0, least(credit, burst / 2 - others - keeps));
      IF level >= 0 THEN level := level + credit; credit := 0; END IF;
      IF level >= most THEN level := most; part := 0; END IF;
    END IF;
    first := least(first, burst);
    there := greatest(level, 0) + credit;
    IF is_repeat THEN
      allowance := had; -- The answer was lost: repeat it.
    ELSE
      IF NOT known THEN nodes := nodes + 1; keeps := 0; END IF;
      phase := CASE WHEN stepped THEN stamp % period ELSE part END;
      span := least(reach, useful);
      minted := CASE WHEN stepped THEN least((phase + span) / period, MAX_DEBT / amount + 1) * amount
        ELSE least(span / period, MAX_DEBT / amount + 1) * amount + (span % period * amount + part) / period END;
      -- `want`, or `first`, or nothing, of tokens from one source: those that are there in spite of a debt, returned ones that
      -- come after all that the node still has, or those that are not promised yet. A node with an older quota has chosen
      -- these numbers by that: it asks anew when it knows the newer one.
      came := last + least(level, 0);
      minted := CASE WHEN at_once THEN 0 ELSE least(minted, MAX_DEBT) END;
      later := level + minted;
      can := later;
      IF level < 0 THEN
        can := credit + greatest(0, later);
        FOR i IN 1..cardinality(returned) BY 2 LOOP
          can := can + greatest(0, least(returned[i + 1], came + minted) - returned[i]);
        END LOOP;
      END IF;
      can := can - CASE WHEN at_once THEN placed_all ELSE older END;
      IF at_once OR NOT is_other THEN
        IF level < 0 THEN
          one_most := least(can, credit);
          from_there := CASE WHEN want <= one_most THEN want WHEN first <= one_most AND NOT at_once THEN first ELSE 0 END;
        END IF;
        FOR i IN 1..cardinality(returned) BY 2 LOOP
          EXIT WHEN again IS NOT NULL;
          one_most := least(can, greatest(0, least(returned[i + 1], came + minted) - returned[i]));
          given := CASE WHEN want <= one_most THEN want WHEN first <= one_most AND NOT at_once THEN first ELSE 0 END;
          IF returned[i] >= its_last - unused AND given > 0 THEN again := i; END IF;
        END LOOP;
        IF from_there > 0 THEN
          given := from_there;
        ELSIF again IS NULL THEN
          one_most := least(can, later);
          given := CASE WHEN want <= one_most THEN want WHEN first <= one_most AND NOT at_once THEN first ELSE 0 END;
        END IF;
      END IF;
      -- The node's allowance: a fair part of half of the burst, or the cost that a caller was denied.
      half := burst / 2;
      fair := greatest(1, burst / (2 * (nodes + 1)));
      allowance := greatest(keeps, least(greatest(least(allowance, fair), minimum), half - others));
      -- Callers to come get tokens that are there and for which no claim waits; beside claims that wait, and for one that was
      -- denied, those of the horizon.
      minted := CASE WHEN stepped THEN least((phase + reach) / period, MAX_DEBT / amount + 1) * amount
        ELSE least(reach / period, MAX_DEBT / amount + 1) * amount + (reach % period * amount + part) / period END;
      spare := level + CASE WHEN minimum > 0 OR given > 0 THEN least(minted, MAX_DEBT) ELSE 0 END;
      spare := CASE WHEN NOT at_once AND is_other OR from_there > 0 OR again IS NOT NULL THEN 0
        ELSE spare - given - placed_all END;
      more := greatest(0, least(ahead, allowance - banked, spare));
      tokens := given + more;
      allowance := greatest(keeps, least(allowance, banked + more));
      debt := greatest(0, -level);
      granted := greatest(0, least(level, tokens));
      queued_before := debt;
      promised_last := last + tokens - granted;
      IF from_there > 0 THEN
        granted := from_there;
        credit := credit - from_there;
      ELSIF again IS NOT NULL THEN
        queued_before := returned[again] - came;
        returned[again] := returned[again] + given;
        promised_last := returned[again];
        returned := tollgate_compact_1(returned);
      ELSE
        level := level - tokens;
        last := promised_last;
      END IF;
      promised := tokens - granted;
      IF promised = 0 THEN promised_last := 0; END IF;
      at := clock;
      most := greatest(burst - others - allowance, least(fill, burst), 0);
      credit := greatest(0, least(credit, burst / 2 - others - allowance));
      IF level >= 0 THEN level := level + credit; credit := 0; END IF;
      IF level >= most THEN level := most; part := 0; END IF;
      -- Counts the nodes with waiters, in each epoch anew.
      this := now / EPOCH_LENGTH;
      epochs := 1 + (least(ceil(debt::double precision / amount) * period, LONGEST)::bigint + EPOCH_LENGTH / 2)
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
      has_first := 0; since := 0; expected := 0; grace := 0;
    END IF;
    -- A node that gets nothing, and whose claims can still be served in time, gets a place.
    wait := 0;
    is_sent_away := granted + promised = 0 AND first > 0;
    tokens := first + older - level;
    IF is_sent_away AND tokens > 0 THEN
      wait := tokens / amount * period + CASE
        WHEN stepped THEN CASE WHEN tokens % amount > 0 THEN period ELSE 0 END - stamp % period
        ELSE ceil((tokens % amount * period - part)::numeric / amount)::bigint END;
      wait := greatest(0, least(wait, LONGEST));
    END IF;
    IF is_sent_away AND NOT is_repeat AND wait <= useful AND NOT at_once AND places < MOST_PLACES THEN
      has_first := first;
      since := now - age;
      expected := now + greatest(0, least(wait - reach, greatest(SLEEP, age / 2)));
      grace := greatest(SHORT_GRACE, least(rtt, LONGEST_HORIZON) * 5 / 4);
    END IF;
    IF has_first > 0 THEN until := greatest(until, expected + grace); END IF;
    placed := placed_all + has_first;
    fill := CASE WHEN oldest IS NOT NULL
      AND (has_first = 0 OR oldest < since OR oldest = since AND oldest_first > has_first)
      THEN oldest_first ELSE has_first END;

    IF leave THEN
      IF known THEN DELETE FROM tollgate WHERE store = name AND node = id; END IF;
      held := others;
      nodes := nodes - 1;
      allowance := 0;
    ELSE
      held := others + allowance;
      last_until := greatest(last_until, until);
      mine := ARRAY[number, allowance, until, seen, granted, promised, queued_before, phase, at, promised_last,
        has_first, since, expected, grace];
      IF known THEN
        UPDATE tollgate SET numbers = mine WHERE store = name AND node = id;
      ELSE
        INSERT INTO tollgate VALUES (name, id, mine);
      END IF;
    END IF;
    -- One part more is left for a node that joins. A far node gets at least what is minted until its next answer.
    total := greatest(1, busy, was);
    span := greatest(reach * total / (total + 1), least(rtt, reach));
    minted := CASE WHEN stepped THEN least((stamp % period + span) / period, MAX_DEBT / amount + 1) * amount
      ELSE least(span / period, MAX_DEBT / amount + 1) * amount + (span % period * amount + part) / period END;
    answer := ARRAY[before, clock - at, granted, promised, queued_before, phase, wait,
      greatest(1, (there + least(minted, MAX_DEBT)) / total), allowance, nodes, greatest(0, level) + credit,
      promised_last, clock];
    IF is_other THEN
      answer := answer || has;
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
    level, stamp, part, swept, epoch, busy, was, clock, placed, fill, held, nodes, last_until,
    now + ((keep + 999) / 1000 + 1) * 1000, last, credit, void
  ] || returned WHERE store = name AND node = '';

  IF refused THEN
    RETURN ARRAY[-1, greatest(0, -level)];
  END IF;
  RETURN answer;
END $$;

-- Deletes the stores that may be forgotten, at most `most_stores` of them, and returns how many it has deleted.
CREATE OR REPLACE FUNCTION tollgate_sweep_1(most_stores bigint) RETURNS bigint LANGUAGE sql AS $$
  WITH ended AS (
    SELECT store, node FROM tollgate
    WHERE node = '' AND numbers[14] < (extract(epoch FROM clock_timestamp()) * 1000000)::bigint
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
