-- The migration of tollgate-postgres: a table and seven functions. It can run again, and while limiters run.
--
-- A store is one row with an empty node, the bucket, and a row for each node:
--   bucket: numbers = level stamp part swept epoch busy was clock placed fill held nodes last_until ends last credit void,
--           and from and to of each promise that was returned
--           quota = amount period burst initial kind version, and of a calendar quota when its period begins and ends
--           (kind: 0 evenly, 1 in steps, more: by a calendar)
--           classes = number parent weight lead seen of each class, class 0 first
--   node:   numbers = number allowance until epoch granted promised queued_before part at last, and class first since until
--           of each class that lacks tokens
-- The numbers are tokens, or microseconds of the server's clock. A missing bucket is full, and no node holds anything.
CREATE TABLE IF NOT EXISTS tollgate (
  store bytea NOT NULL,
  node bytea NOT NULL,
  numbers bigint[] NOT NULL,
  quota bigint[],
  classes bigint[],
  PRIMARY KEY (store, node)
) WITH (fillfactor = 50); -- updates find space on the same page, and leave the index alone

-- Forgets the returned promises that have no tokens any more: those of a list of from and to.
CREATE OR REPLACE FUNCTION tollgate_compact_1(returned bigint[]) RETURNS bigint[] LANGUAGE plpgsql IMMUTABLE AS $$
DECLARE
  kept bigint[] := '{}'::bigint[];
BEGIN
  FOR i IN 1..cardinality(returned) BY 2 LOOP
    IF returned[i] < returned[i + 1] THEN kept := kept || returned[i:i + 1]; END IF;
  END LOOP;
  RETURN kept;
END $$;

-- How many tokens are minted in the next `micros` microseconds, up to 2^52. `phase` is the progress towards the next token.
CREATE OR REPLACE FUNCTION tollgate_minted_1(micros bigint, amount bigint, period bigint, phase bigint, stepped boolean)
RETURNS bigint LANGUAGE sql IMMUTABLE AS $$
  SELECT least(4503599627370496, CASE
    WHEN stepped THEN least((phase + micros) / period, 4503599627370496 / amount + 1) * amount
    ELSE least(micros / period, 4503599627370496 / amount + 1) * amount + (micros % period * amount + phase) / period END)
$$;

-- In how many microseconds so many tokens are minted, up to 2^52; 0 if there are that many already.
CREATE OR REPLACE FUNCTION tollgate_time_1(tokens bigint, amount bigint, period bigint, phase bigint, stepped boolean)
RETURNS bigint LANGUAGE sql IMMUTABLE AS $$
  SELECT CASE WHEN tokens <= 0 THEN 0 ELSE greatest(0, least(4503599627370496, tokens / amount * period + CASE
    WHEN stepped THEN CASE WHEN tokens % amount > 0 THEN period ELSE 0 END - phase
    ELSE ceil((tokens % amount * period - phase)::numeric / amount)::bigint END)) END
$$;

-- Of each class, the weights of the classes in it of which some are counted, or have such classes in them, and 1 if it is
-- itself. A class whose parent is not known is in class 0, the first one.
CREATE OR REPLACE FUNCTION tollgate_weights_1(numbers bigint[], parents bigint[], weights bigint[], counted boolean[])
RETURNS bigint[] LANGUAGE plpgsql IMMUTABLE AS $$
DECLARE
  sums bigint[] := array_fill(0::bigint, ARRAY[cardinality(numbers)]);
  at integer;
  parent integer;
  is_new boolean;
BEGIN
  FOR own IN 1..cardinality(numbers) LOOP
    CONTINUE WHEN NOT counted[own];
    at := own;
    is_new := sums[own] = 0;
    sums[own] := sums[own] + 1;
    WHILE at > 1 AND is_new LOOP
      parent := coalesce(array_position(numbers, parents[at]), 1);
      is_new := sums[parent] = 0;
      sums[parent] := sums[parent] + weights[at];
      at := parent;
    END LOOP;
  END LOOP;
  RETURN sums;
END $$;

-- What is due to a class of all tokens, by these sums of weights.
CREATE OR REPLACE FUNCTION tollgate_share_1(
  numbers bigint[], parents bigint[], weights bigint[], sums bigint[], class integer
) RETURNS double precision LANGUAGE plpgsql IMMUTABLE AS $$
DECLARE
  MAX_DEPTH constant integer := 16;
  share double precision := 1 / greatest(1, sums[class])::double precision;
  at integer := class;
  parent integer;
BEGIN
  FOR depth IN 1..MAX_DEPTH LOOP
    EXIT WHEN at = 1;
    parent := coalesce(array_position(numbers, parents[at]), 1);
    share := share * weights[at] / greatest(1, sums[parent])::double precision;
    at := parent;
  END LOOP;
  RETURN least(share, 1);
END $$;

-- Answers one request. The rules and the names are those of `SharedBucket` of the crate tollgate
-- (src/distributed/bucket.rs), which explains them, equal to the integer. The lock of the bucket's row is held until the
-- transaction ends, so each request should be one.
--
-- ask = number ttl want first age useful rtt back unused last rest ahead banked minimum held, and class parent weight want
-- first lack age useful of each class
--
-- Returns the numbers of the answer, or a refusal: -1 and the tokens owed, -2 and the number of the later request, -3 and
-- the quota of the store, -4 and the clock if that is not in the period that the request says.
CREATE OR REPLACE FUNCTION tollgate_ask_1(
  name bytea, id bytea, leave boolean, at_once boolean, asked bigint[], ask bigint[]
) RETURNS bigint[] LANGUAGE plpgsql SET lock_timeout = '500ms' AS $$
DECLARE
  EPOCH_LENGTH constant bigint := 250000;
  HORIZON constant bigint := 250000;
  LONGEST_HORIZON constant bigint := 1000000;
  SHORTEST_GRACE constant bigint := 100000;
  LONGEST_GRACE constant bigint := 1250000;
  SLEEP constant bigint := 700000;
  LOOK constant bigint := 5000;
  MOST_PLACES constant bigint := 1000;
  MOST_CLASSES constant integer := 128;
  REMEMBERED constant bigint := 2000000;
  LEAST_REACH constant bigint := 5000;
  MOST_LEAD constant double precision := 4503599627370496;
  MAX_WEIGHT constant bigint := 1000000;
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
  banked bigint := ask[13]; minimum bigint := ask[14]; keeps bigint := ask[15]; allowance bigint;
  bucket bigint[];
  has bigint[];
  mine bigint[];
  known boolean;
  is_repeat boolean;
  now bigint;
  amount bigint; period bigint; burst bigint; stepped boolean;
  counts bigint; said bigint[]; begins_anew boolean := false; ends_in bigint;
  level bigint; stamp bigint; part bigint; swept bigint; epoch bigint; busy bigint; was bigint; clock bigint;
  placed bigint; fill bigint; held bigint; nodes bigint; last_until bigint; last bigint; credit bigint; void bigint;
  returned bigint[]; from_ bigint; to_ bigint; came bigint; from_there bigint := 0;
  again integer; promised_last bigint := 0; debt bigint;
  held_then bigint; last_end bigint; until bigint;
  most bigint; minted bigint; total bigint; this bigint; epochs bigint;
  rest double precision; owed double precision; to_part double precision;
  refused boolean := false;
  is_other boolean;
  before bigint := 0; had bigint := 0; seen bigint := -1; granted bigint := 0; promised bigint := 0;
  queued_before bigint := 0; phase bigint := 0; at bigint;
  grace bigint; reach bigint; recent bigint; placed_all bigint := 0; least_lead bigint;
  there bigint; span bigint; can bigint; given bigint := 0; wait bigint; soonest bigint; is_sent_away boolean; is_outdated boolean;
  lead bigint; fill_lead bigint; fill_since bigint; best_lead bigint := 0; best_since bigint := 0; best_first bigint := 0;
  places bigint := 0; older bigint := 0; source integer; runs integer; near bigint; share double precision; is_counted boolean[]; is_live boolean[]; is_away boolean[]; away bigint := 0;
  -- The claims of each class in the request, and what they get.
  has_classes boolean := cardinality(ask) > 15; r_count integer;
  r_number bigint[]; r_want bigint[]; r_first bigint[]; r_lack bigint[]; r_age bigint[]; r_useful bigint[];
  r_at integer[]; r_older bigint[]; r_sooner bigint[]; r_reach bigint[]; r_within bigint[]; r_can bigint[]; r_part bigint[]; r_is_ahead boolean[]; r_given bigint[];
  r_answer bigint[];
  -- The classes of all nodes.
  stored bigint[]; c_count integer := 0; c_number bigint[] := '{}'::bigint[]; c_parent bigint[]; c_weight bigint[];
  c_lead bigint[]; c_seen bigint[]; c_nodes bigint[]; c_stay bigint[]; sums bigint[]; live bigint[]; index integer;
  -- The places of other nodes, and those of this one: class first since until of each class that lacks tokens.
  l_lead bigint[]; l_since bigint[]; l_first bigint[]; l_class bigint[]; lacking bigint[];
  own bigint[] := '{}'::bigint[]; kept bigint[] := '{}'::bigint[]; made bigint[] := '{}'::bigint[]; one_place bigint[];
  others bigint; half bigint; fair bigint; spare bigint; more bigint; tokens bigint; keep bigint;
  answer bigint[];
BEGIN
  LOOP
    SELECT numbers, quota, classes INTO bucket, has, stored FROM tollgate WHERE store = name AND node = '' FOR UPDATE;
    EXIT WHEN FOUND;
    INSERT INTO tollgate VALUES (name, '', '{}', asked) ON CONFLICT DO NOTHING;
  END LOOP;
  -- Read under the lock, so that a later request has a later time.
  now := (extract(epoch FROM clock_timestamp()) * 1000000)::bigint;
  -- Something else wrote the row.
  IF cardinality(bucket) <> 0 AND (cardinality(bucket) < 17 OR cardinality(bucket) % 2 = 0) OR array_position(bucket, NULL) IS NOT NULL OR coalesce(cardinality(has), 0) NOT IN (6, 8)
  THEN
    RETURN NULL;
  END IF;
  IF cardinality(bucket) = 0 OR bucket[14] < now THEN
    IF cardinality(bucket) > 0 THEN
      DELETE FROM tollgate WHERE store = name AND node <> '';
    END IF;
    has := asked;
    stored := NULL;
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
  counts := CASE WHEN asked[6] > has[6] THEN asked[5] ELSE has[5] END;
  said := CASE WHEN asked[6] <= has[6] AND (asked[5] <> counts OR asked[8] = 0) THEN has ELSE asked END;
  IF counts > 1 AND NOT (said[7] <= now AND now < said[8]) THEN
    -- A row that this request has made.
    DELETE FROM tollgate WHERE store = name AND node = '' AND numbers = '{}';
    RETURN ARRAY[-4, now];
  END IF;
  IF asked[5] > 1 AND asked[5] = has[5] AND asked[7] <= now AND now < asked[8] AND now >= has[8] THEN
    begins_anew := asked[7] > has[7];
    has[7] := greatest(has[7], asked[7]);
    has[8] := asked[8];
  END IF;
  -- A period begins. A node may use its allowance until its lease ends, and gets nothing more by a repeat of its last answer.
  IF begins_anew THEN
    SELECT greatest(0, has[3] - coalesce(sum(numbers[2]), 0)) INTO level FROM tollgate
      WHERE store = name AND node <> '' AND numbers[3] > has[7];
    UPDATE tollgate SET numbers[5] = 0 WHERE store = name AND node <> '' AND numbers[5] <> 0;
  END IF;

  -- Forgets the nodes that have reached the end of their time to live. Until then a node may use what it keeps, so the
  -- bucket has space for these tokens only from then on: it mints up to the last of these ends first. If the clock has
  -- stepped back, the ends step back with it: no node is forgotten sooner or later for that.
  held_then := held;
  IF begins_anew OR nodes = 0 OR now >= swept + (ttl + 3) / 4 OR now < swept THEN
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
  amount := has[1]; period := has[2]; burst := has[3]; stepped := has[5] > 0;
  FOR pass IN 1..2 LOOP
    CONTINUE WHEN pass = 1 AND (last_end IS NULL OR last_end <= stamp);
    IF pass = 1 THEN until := last_end; ELSE until := now; held := held_then; END IF;
    most := greatest(burst - held, least(fill, burst), 0);
    minted := 0;
    total := part;
    IF has[5] = 1 THEN
      minted := greatest(0, least(until / period - stamp / period, (burst - level) / amount + 2)) * amount;
    ELSIF NOT stepped AND until > stamp THEN
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
    -- They begin anew if no node knows them, or they become too large.
    IF last > LAST_NUMBER OR nodes = 0 AND level >= 0 THEN
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
        IF asked[5] > 1 THEN
          owed := 0; -- what was promised comes, and nothing is promised after it
        ELSIF asked[5] = 1 THEN
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
      -- A period that has begun does not begin again.
      has := asked[:6] || CASE WHEN asked[5] = has[5] THEN has[7:] ELSE asked[7:] END;
      amount := has[1]; period := has[2]; burst := has[3]; stepped := has[5] > 0;
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
    queued_before := mine[7]; phase := mine[8]; at := mine[9]; promised_last := mine[10];
    own := mine[11:];
  END IF;
  is_repeat := known AND number = before;
  others := held - had;
  reach := greatest(HORIZON, least(LONGEST_HORIZON, rtt * 5 / 2));
  recent := 2 * reach;
  ends_in := greatest(1, has[8] - stamp);
  -- Nothing is promised for the next period of a calendar: no debt is there when it begins.
  IF has[5] > 1 THEN reach := 0; END IF;

  IF NOT refused THEN
    -- The claims of each class. Without classes, all are those of class 0.
    IF has_classes THEN
      SELECT array_agg(ask[i] ORDER BY i), array_agg(ask[i + 3] ORDER BY i), array_agg(least(ask[i + 4], burst) ORDER BY i),
          array_agg(ask[i + 5] ORDER BY i), array_agg(least(ask[i + 6], LONGEST) ORDER BY i), array_agg(ask[i + 7] ORDER BY i)
        INTO r_number, r_want, r_first, r_lack, r_age, r_useful
        FROM generate_series(16, cardinality(ask), 8) AS i;
    ELSE
      r_number := ARRAY[0]; r_want := ARRAY[want]; r_first := ARRAY[least(first, burst)]; r_lack := ARRAY[want];
      r_age := ARRAY[age]; r_useful := ARRAY[useful];
    END IF;
    r_count := cardinality(r_number);
    IF r_count > 1 THEN
      r_at := array_fill(1, ARRAY[r_count]);
      r_part := array_fill(1::bigint, ARRAY[r_count]);
      r_is_ahead := array_fill(false, ARRAY[r_count]);
      r_given := array_fill(0::bigint, ARRAY[r_count]);
      r_reach := array_fill(reach, ARRAY[r_count]);
    ELSE
      r_at := ARRAY[1]; r_part := ARRAY[1]; r_is_ahead := ARRAY[false]; r_given := ARRAY[0]; r_reach := ARRAY[reach];
    END IF;
    -- The classes of all nodes: those without a request for long are forgotten.
    IF stored IS NOT NULL THEN
      SELECT array_agg(stored[i] ORDER BY i), array_agg(stored[i + 1] ORDER BY i), array_agg(stored[i + 2] ORDER BY i),
          array_agg(stored[i + 3] ORDER BY i), array_agg(stored[i + 4] ORDER BY i),
          array_agg(clock - stored[i + 4] < REMEMBERED ORDER BY i)
        INTO c_number, c_parent, c_weight, c_lead, c_seen, is_counted
        FROM generate_series(1, cardinality(stored), 5) AS i;
      sums := tollgate_weights_1(c_number, c_parent, c_weight, is_counted);
      SELECT array_agg(c_number[i] ORDER BY i), array_agg(c_parent[i] ORDER BY i), array_agg(c_weight[i] ORDER BY i),
          array_agg(c_lead[i] ORDER BY i), array_agg(c_seen[i] ORDER BY i)
        INTO c_number, c_parent, c_weight, c_lead, c_seen
        FROM generate_series(1, cardinality(c_number)) AS i WHERE i = 1 OR sums[i] > 0;
      IF cardinality(c_number) = 1 AND NOT has_classes THEN
        c_number := '{}'; c_parent := '{}'; c_weight := '{}'; c_lead := '{}'; c_seen := '{}';
      END IF;
    END IF;
    IF has_classes AND cardinality(c_number) = 0 THEN
      c_number := ARRAY[0]; c_parent := ARRAY[0]; c_weight := ARRAY[1]; c_lead := ARRAY[0]; c_seen := ARRAY[-REMEMBERED];
    END IF;
    -- A class in another class begins with the largest lead of its siblings there: a new name is no way around what they had.
    FOR i IN 16..CASE WHEN has_classes THEN cardinality(ask) ELSE 0 END BY 8 LOOP
      index := array_position(c_number, ask[i]);
      IF index IS NULL THEN
        SELECT coalesce(max(one.lead), 0) INTO lead FROM unnest(c_parent, c_lead) AS one(parent, lead)
          WHERE ask[i + 1] <> 0 AND one.parent = ask[i + 1];
        IF cardinality(c_number) = MOST_CLASSES THEN
          SELECT one INTO index FROM generate_series(2, MOST_CLASSES) AS one ORDER BY c_seen[one], one LIMIT 1;
          c_number := c_number[:index - 1] || c_number[index + 1:]; c_parent := c_parent[:index - 1] || c_parent[index + 1:];
          c_weight := c_weight[:index - 1] || c_weight[index + 1:]; c_lead := c_lead[:index - 1] || c_lead[index + 1:];
          c_seen := c_seen[:index - 1] || c_seen[index + 1:];
        END IF;
        index := cardinality(c_number) + 1;
        c_number[index] := ask[i]; c_lead[index] := lead; c_seen[index] := -REMEMBERED;
      END IF;
      c_parent[index] := ask[i + 1];
      c_weight[index] := greatest(1, least(ask[i + 2], MAX_WEIGHT));
      IF ask[i + 5] > 0 THEN c_seen[index] := greatest(c_seen[index], clock); END IF;
    END LOOP;
    c_count := cardinality(c_number);
    IF c_count > 0 AND NOT has_classes AND want > 0 THEN c_seen[1] := greatest(c_seen[1], clock); END IF;

    -- The places of other nodes, the first of them in order, and on how many nodes each class lacks tokens. A place further
    -- ahead than a node may come is void: the clock was set back.
    IF c_count = 0 AND placed > 0 THEN
      SELECT count(*), coalesce(sum(its_first), 0), coalesce(sum(its_first) FILTER (WHERE its_since < now - r_age[1]), 0),
          coalesce(min(its_since), 0), coalesce((array_agg(its_first ORDER BY its_since, its_first DESC))[1], 0)
        INTO places, placed_all, older, best_since, best_first
        FROM (
          SELECT least(other.numbers[i + 1], burst) AS its_first, other.numbers[i + 2] AS its_since
          FROM (
            SELECT row.numbers, generate_series(11, cardinality(row.numbers), 4) AS i FROM tollgate AS row
            WHERE store = name AND node <> '' AND node <> id
          ) AS other WHERE other.numbers[i + 1] > 0
            AND other.numbers[i + 3] BETWEEN now AND now + greatest(SLEEP, (now - other.numbers[i + 2]) / 2) + LONGEST_GRACE
        ) AS all_places;
    ELSIF c_count > 0 THEN
      SELECT coalesce(array_agg(its_lead) FILTER (WHERE is_kept), '{}'), coalesce(array_agg(its_since) FILTER (WHERE is_kept), '{}'),
          coalesce(array_agg(its_first) FILTER (WHERE is_kept), '{}'), coalesce(array_agg(its_class) FILTER (WHERE is_kept), '{}'),
          coalesce(sum(its_first) FILTER (WHERE is_kept), 0),
          coalesce(array_agg(its_class) FILTER (WHERE is_expected OR is_recent), '{}')
        INTO l_lead, l_since, l_first, l_class, placed_all, lacking
        FROM (
          SELECT *, is_expected AND placed > 0 AS is_kept FROM (
            SELECT coalesce(c_lead[coalesce(array_position(c_number, other.numbers[i]), 1)], 0) AS its_lead,
              other.numbers[i] AS its_class, least(other.numbers[i + 1], burst) AS its_first, other.numbers[i + 2] AS its_since,
              clock - other.numbers[9] < recent AS is_recent,
              other.numbers[i + 1] > 0 AND other.numbers[i + 3] BETWEEN now
                AND now + greatest(SLEEP, (now - other.numbers[i + 2]) / 2) + LONGEST_GRACE AS is_expected
            FROM tollgate AS other, generate_series(11, cardinality(other.numbers), 4) AS i
            WHERE store = name AND node <> '' AND node <> id
          ) AS each_place ORDER BY its_lead, its_since, its_first DESC
        ) AS all_places;
      places := cardinality(l_first);
      best_lead := coalesce(l_lead[1], 0); best_since := coalesce(l_since[1], 0); best_first := coalesce(l_first[1], 0);
    END IF;
    IF c_count > 0 THEN
      c_nodes := array_fill(0::bigint, ARRAY[c_count]);
      FOR i IN 1..cardinality(lacking) LOOP
        index := coalesce(array_position(c_number, lacking[i]), 1);
        c_nodes[index] := c_nodes[index] + 1;
      END LOOP;
      -- And on how many nodes each class will lack tokens if the request is granted.
      c_stay := c_nodes;
      FOR i IN 1..r_count LOOP
        index := coalesce(array_position(c_number, r_number[i]), 1);
        r_at[i] := index;
        IF r_lack[i] > 0 THEN c_nodes[index] := c_nodes[index] + 1; END IF;
        IF r_lack[i] > r_want[i] THEN c_stay[index] := c_stay[index] + 1; END IF;
      END LOOP;
      SELECT array_agg(c_nodes[i] > 0 ORDER BY i), array_agg(clock - c_seen[i] < recent ORDER BY i),
          coalesce(min(c_lead[i]) FILTER (WHERE c_nodes[i] > 0), 0),
          array_agg(clock - c_seen[i] < recent AND c_stay[i] = 0 ORDER BY i),
          count(*) FILTER (WHERE clock - c_seen[i] < recent AND c_stay[i] = 0)
        INTO is_counted, is_live, least_lead, is_away, away
        FROM generate_series(1, c_count) AS i;
      sums := tollgate_weights_1(c_number, c_parent, c_weight, is_counted);
      live := tollgate_weights_1(c_number, c_parent, c_weight, is_live);
      -- While another class was there a moment ago and will lack none, it may be back at once.
      FOR i IN 1..r_count LOOP
        IF away > is_away[r_at[i]]::integer THEN r_reach[i] := least(r_reach[i], greatest(2 * rtt, LEAST_REACH)); END IF;
      END LOOP;
    END IF;
    -- What was saved up for a node that has not come, or whose claim has left, is not there any more.
    FOR i IN 1..cardinality(own) BY 4 LOOP
      index := array_position(r_number, own[i]);
      IF index IS NOT NULL THEN
        kept := kept || ARRAY[own[i],
          CASE WHEN r_want[index] = 0 AND r_lack[index] > 0 THEN own[i + 1] ELSE least(own[i + 1], r_first[index]) END,
          own[i + 2], own[i + 3]];
      END IF;
    END LOOP;
    -- The bucket fills up to the tokens of the first place in order.
    fill := best_first; fill_lead := best_lead; fill_since := best_since;
    FOR i IN 1..cardinality(kept) BY 4 LOOP
      lead := coalesce(c_lead[coalesce(array_position(c_number, kept[i]), 1)], 0);
      IF kept[i + 1] > 0 AND (fill = 0 OR (lead, kept[i + 2], -kept[i + 1]) < (fill_lead, fill_since, -fill)) THEN
        fill := kept[i + 1]; fill_lead := lead; fill_since := kept[i + 2];
      END IF;
    END LOOP;
    most := greatest(burst - held, least(fill, burst), 0);
    IF level >= most THEN level := most; part := 0; END IF;
    IF known AND NOT is_repeat THEN
      -- Of a calendar quota no more than the node got in this period, or might keep when that began.
      IF has[5] > 1 THEN back := least(back, had + granted); END IF;
      -- Returned promises: the last ones are not promised any more; those that have later ones behind them can be promised
      -- anew.
      IF unused > 0 THEN
        came := last + least(level, 0);
        wait := tollgate_time_1(least(its_last, last) - came, amount, period, CASE WHEN stepped THEN stamp % period ELSE part END,
          stepped);
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
    there := greatest(level, 0) + credit;
    near := CASE WHEN has[5] > 1 THEN period - least(ends_in, period) WHEN stepped THEN stamp % period ELSE part END;
    came := last + least(level, 0);
    runs := cardinality(returned) / 2;
    FOR i IN 1..r_count LOOP
      lead := coalesce(c_lead[r_at[i]], 0);
      r_older[i] := older;
      r_sooner[i] := older;
      IF cardinality(l_lead) > 0 THEN
        -- And how many are surely given before it gets some: the first place of another class gets its tokens, and the others
        -- may come behind it then.
        fill_lead := lead;
        SELECT coalesce(sum(one.first), 0), coalesce(sum(one.first) FILTER (WHERE one.class = r_number[i]), 0)
            + coalesce((array_agg(one.first ORDER BY one.lead, one.since, one.first DESC)
              FILTER (WHERE one.class <> r_number[i]))[1], 0)
          INTO older, tokens FROM unnest(l_lead, l_since, l_first, l_class) AS one(lead, since, first, class)
          WHERE (one.lead, one.since) < (fill_lead, now - r_age[i]);
        r_older[i] := older;
        r_sooner[i] := tokens;
      END IF;
      r_within[i] := CASE WHEN at_once THEN 0
        ELSE tollgate_minted_1(least(r_reach[i], r_useful[i]), amount, period, near, stepped) END;
      r_can[i] := level + r_within[i];
      IF level < 0 THEN
        r_can[i] := credit + greatest(0, level + r_within[i]);
        FOR run IN 1..runs LOOP
          r_can[i] := r_can[i] + greatest(0, least(returned[2 * run], came + r_within[i]) - returned[2 * run - 1]);
        END LOOP;
      END IF;
      r_can[i] := r_can[i] - CASE WHEN at_once THEN placed_all ELSE r_older[i] END;
      IF c_count > 0 THEN
        -- So small a part that classes take turns several times within the horizon.
        tokens := there + tollgate_minted_1(r_reach[i] * 2 / 5, amount, period, near, stepped);
        share := tollgate_share_1(c_number, c_parent, c_weight, sums, r_at[i]);
        r_part[i] := floor(tokens * share / greatest(1, c_nodes[r_at[i]]))::bigint;
        share := tollgate_share_1(c_number, c_parent, c_weight, live, r_at[i]);
        lead := floor(greatest(0, lead - least_lead) * share / 1000)::bigint;
        r_is_ahead[i] := lead > greatest(r_part[i], r_first[i]);
        r_part[i] := greatest(1, r_part[i]);
      END IF;
    END LOOP;
    IF is_repeat THEN
      allowance := had; -- The answer was lost: repeat it.
      more := granted + promised;
      FOR i IN 1..r_count LOOP
        r_given[i] := least(r_want[i], more);
        more := more - r_given[i];
      END LOOP;
    ELSE
      IF NOT known THEN nodes := nodes + 1; keeps := 0; END IF;
      phase := near;
      -- The node has chosen these numbers by an older quota. It asks anew when it knows the newer one.
      is_outdated := NOT at_once AND is_other;
      -- `want`, or a multiple of `first`, or nothing for each class, of tokens from one source: those that are there in
      -- spite of a debt, returned ones that come after all that the node still has, or those that are not promised yet.
      FOR one_source IN 0..runs + 1 LOOP
        source := one_source;
        CONTINUE WHEN source = 0 AND level >= 0;
        CONTINUE WHEN source BETWEEN 1 AND runs AND returned[2 * source - 1] < its_last - unused;
        given := 0;
        FOR i IN 1..r_count LOOP
          can := CASE WHEN source = 0 THEN credit
            WHEN source <= runs THEN
              greatest(0, least(returned[2 * source], came + r_within[i]) - returned[2 * source - 1])
            ELSE level + r_within[i] END;
          can := least(can, r_can[i]) - given;
          r_given[i] := CASE WHEN is_outdated OR r_is_ahead[i] THEN 0 WHEN r_want[i] <= can THEN r_want[i]
            WHEN can > 0 AND NOT at_once THEN can - can % greatest(1, r_first[i]) ELSE 0 END;
          given := given + r_given[i];
        END LOOP;
        EXIT WHEN given > 0;
      END LOOP;
      from_there := CASE WHEN source = 0 THEN given ELSE 0 END;
      again := CASE WHEN source BETWEEN 1 AND runs AND given > 0 THEN 2 * source - 1 END;
      -- The node's allowance: a fair part of half of the burst, or the cost that a caller was denied.
      half := burst / 2;
      fair := greatest(1, burst / (2 * (nodes + 1)));
      allowance := greatest(keeps, least(greatest(fair, minimum), half - others));
      -- Callers to come get tokens that are there and for which no claim waits; beside claims that wait, and for one that was
      -- denied, those of the horizon.
      minted := tollgate_minted_1(reach, amount, period, near, stepped);
      spare := level + CASE WHEN minimum > 0 OR given > 0 THEN minted ELSE 0 END;
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
      -- The classes were given tokens: the virtual time goes on to the smallest tag of those that lack some.
      IF c_count > 0 AND given > 0 THEN
        FOR i IN 1..r_count LOOP
          share := tollgate_share_1(c_number, c_parent, c_weight, live, r_at[i]);
          c_lead[r_at[i]] := least(c_lead[r_at[i]] + floor(r_given[i]::double precision * 1000 / share), MOST_LEAD)::bigint;
        END LOOP;
        SELECT coalesce(min(c_lead[i]) FILTER (WHERE c_nodes[i] > 0), 0) INTO least_lead FROM generate_series(1, c_count) AS i;
        SELECT array_agg(greatest(0, c_lead[i] - least_lead) ORDER BY i) INTO c_lead FROM generate_series(1, c_count) AS i;
      END IF;
    END IF;
    -- A class that gets nothing, and whose claims can still be served in time, gets a place.
    IF is_repeat THEN made := own; END IF;
    grace := greatest(SHORTEST_GRACE, least(LONGEST_GRACE, rtt * 5 / 4));
    near := CASE WHEN has[5] > 1 THEN period - least(ends_in, period) WHEN stepped THEN stamp % period ELSE part END;
    FOR i IN 1..r_count LOOP
      is_sent_away := r_given[i] = 0 AND r_first[i] > 0 AND (granted + promised = 0 OR has_classes);
      wait := 0;
      soonest := 0;
      IF is_sent_away THEN
        -- What the class of this node gets first that is furthest behind one that is ahead.
        tokens := 0;
        IF r_is_ahead[i] THEN
          SELECT coalesce((array_agg(one.first ORDER BY one.lead, one.first))[1], 0) INTO tokens FROM (
            SELECT coalesce(c_lead[r_at[other]], 0) AS lead, CASE WHEN r_want[other] > 0 THEN r_first[other] ELSE
                (SELECT own[its + 1] FROM generate_series(1, cardinality(own), 4) AS its WHERE own[its] = r_number[other] LIMIT 1)
              END AS first FROM generate_series(1, r_count) AS other WHERE r_lack[other] > r_given[other]
          ) AS one WHERE one.first > 0 AND one.lead < coalesce(c_lead[r_at[i]], 0);
        END IF;
        wait := tollgate_time_1((r_first[i] + greatest(r_older[i], tokens) - level)::bigint, amount, period, near, stepped);
        -- A node that does not know of classes computes its sleep from the wait.
        soonest := CASE WHEN has_classes
          THEN tollgate_time_1((r_first[i] + greatest(r_sooner[i], tokens) - level)::bigint, amount, period, near, stepped)
          ELSE wait END;
        IF has[5] > 1 THEN
          wait := least(wait, 1) * ends_in;
          soonest := least(soonest, 1) * ends_in;
        END IF;
        -- A class that is ahead of others looks again soon.
        IF r_is_ahead[i] THEN
          wait := greatest(wait, r_reach[i] + LOOK);
          soonest := greatest(soonest, r_reach[i] + LOOK);
        END IF;
      END IF;
      span := greatest(0, least(soonest - r_reach[i], greatest(SLEEP, r_age[i] / 2)));
      r_answer := r_answer || ARRAY[r_given[i], wait, span, r_part[i]];
      IF NOT is_repeat AND NOT at_once AND r_lack[i] > r_given[i] THEN
        one_place := ARRAY[r_number[i], 0, 0, 0];
        IF r_want[i] = 0 THEN
          FOR its IN 1..cardinality(own) BY 4 LOOP
            IF own[its] = r_number[i] THEN one_place := own[its:its + 3]; EXIT; END IF;
          END LOOP;
        ELSIF is_sent_away AND wait <= r_useful[i] AND places + cardinality(made) / 4 < MOST_PLACES THEN
          one_place := ARRAY[r_number[i], r_first[i], now - r_age[i], now + span + grace];
          IF c_count > 0 THEN c_seen[r_at[i]] := greatest(c_seen[r_at[i]], clock + span); END IF;
        END IF;
        IF one_place[2] > 0 OR c_count > 0 THEN made := made || one_place; END IF;
      END IF;
    END LOOP;
    wait := 0;
    FOR i IN 2..cardinality(r_answer) BY 4 LOOP
      IF granted + promised = 0 AND r_answer[i] > 0 AND (wait = 0 OR r_answer[i] < wait) THEN wait := r_answer[i]; END IF;
    END LOOP;
    placed := placed_all;
    FOR i IN 1..cardinality(made) BY 4 LOOP
      placed := placed + made[i + 1];
      until := greatest(until, made[i + 3]);
    END LOOP;
    fill := best_first; fill_lead := best_lead; fill_since := best_since;
    FOR i IN 1..cardinality(made) BY 4 LOOP
      lead := coalesce(c_lead[coalesce(array_position(c_number, made[i]), 1)], 0);
      IF made[i + 1] > 0 AND (fill = 0 OR (lead, made[i + 2], -made[i + 1]) < (fill_lead, fill_since, -fill)) THEN
        fill := made[i + 1]; fill_lead := lead; fill_since := made[i + 2];
      END IF;
    END LOOP;

    IF leave THEN
      IF known THEN DELETE FROM tollgate WHERE store = name AND node = id; END IF;
      held := others;
      nodes := nodes - 1;
      allowance := 0;
    ELSE
      held := others + allowance;
      last_until := greatest(last_until, until);
      mine := ARRAY[number, allowance, until, seen, granted, promised, queued_before, phase, at, promised_last] || made;
      IF known THEN
        UPDATE tollgate SET numbers = mine WHERE store = name AND node = id;
      ELSE
        INSERT INTO tollgate VALUES (name, id, mine);
      END IF;
    END IF;
    -- One part more is left for a node that joins.
    total := greatest(1, busy, was);
    minted := tollgate_minted_1(reach * total / (total + 1), amount, period, near, stepped);
    answer := ARRAY[before, clock - at, granted, promised, queued_before, phase, wait,
      greatest(1, (there + minted) / total), allowance, nodes, greatest(0, level) + credit,
      promised_last, clock];
    IF has_classes THEN answer := answer || r_answer; END IF;
    IF is_other THEN
      answer := answer || has;
    END IF;
  END IF;

  -- A bucket that is full, with no allowances left, equals a missing one: it may be deleted at that time. A bucket that
  -- would not begin full is kept for one hour longer. The node whose time to live ends last need not be the one that
  -- asks. A changed quota never makes the bucket forgotten sooner: a node with the old quota would get a new bucket.
  IF has[5] > 1 THEN
    keep := greatest(CASE WHEN level < burst THEN ends_in ELSE 0 END + IDLE,
      last_until - now + CASE WHEN held > 0 THEN ends_in ELSE 0 END);
  ELSE
    keep := least(ceil(greatest(0, burst - level)::double precision / amount) * period, LONGEST)::bigint;
    keep := greatest(keep + CASE WHEN has[4] < burst THEN IDLE ELSE 0 END,
      last_until - now + least(ceil(least(held, burst)::double precision / amount) * period, LONGEST)::bigint);
  END IF;
  keep := least(keep, LONGEST);
  IF NOT refused AND c_count = 0 THEN
    stored := NULL;
  ELSIF NOT refused THEN
    SELECT array_agg(one ORDER BY i, nth) INTO stored FROM generate_series(1, c_count) AS i,
      unnest(ARRAY[c_number[i], c_parent[i], c_weight[i], c_lead[i], c_seen[i]]) WITH ORDINALITY AS class(one, nth);
  END IF;
  UPDATE tollgate SET quota = has, classes = stored, numbers = ARRAY[
    level, stamp, part, swept, epoch, busy, was, clock, placed, fill, held, nodes, last_until,
    greatest(CASE WHEN has[6] > 0 THEN bucket[14] END, now + ((keep + 999) / 1000 + 1) * 1000), last, credit, void
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
