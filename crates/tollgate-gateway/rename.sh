#!/bin/bash
# Run in crates/tollgate-gateway, on a clean tree; then `cargo fmt`, and read the diff of the comments.
r() { local p="$1" n="$2"; shift 2; c=$(perl -0777 -ne "\$c += () = /$p/g; END { print \$c+0 }" "$@"); perl -0pi -e "s/$p/$n/g" "$@"; printf '%4d  %s -> %s\n' "$c" "$p" "$n"; }
mv_() { git mv "src/$1.rs" "src/$2.rs" 2>/dev/null || mv "src/$1.rs" "src/$2.rs"; local f; f=$(find src tests/it -name '*.rs'); r "\\b(super::|mod |app::)$1\\b" "\${1}$2" $f; perl -pi -e "s/\`$1\\.rs\`/\`$2.rs\`/g" $f; }
# 1. files first: later lines use the new names
mv_ addresses connection_limit; mv_ answer local_reply; mv_ calls upstream_stats; mv_ count token_count; mv_ each client_limits
mv_ files open_files; mv_ front handler; mv_ heeding follow_upstream; mv_ lent retry_body; mv_ observed stats; mv_ parts rule_client_limits
mv_ places stream_permits; mv_ prompts prompt_count; mv_ readings path_variants; mv_ settling settling_body; mv_ shared shared_limit
mv_ shares fair_queue; mv_ stall timeout_body; mv_ whole complete_body
SRC=$(find src -name '*.rs'); IT=$(ls tests/it/*.rs); ALL="$SRC $IT"; H=src/handler.rs
r '(?<![.\w])answer::(?=plain|NO_STORE)' local_reply:: $SRC; r 'local_reply::plain\b|(?<=fn )plain\b' 'PLAIN' src/local_reply.rs; r 'PLAIN' problem src/local_reply.rs; r '\blocal_reply::plain\b' local_reply::problem $SRC
r '(?<![.\w])readings::' path_variants:: $SRC; r '(?<![.\w:])observed::' stats:: $SRC; r '\b(?:open_)?files::fit\b' open_files::raise_limit $SRC; r '(?<=fn )fit\b' raise_limit src/open_files.rs
# 2. limits
r '\bToll\b' Charge $SRC; r '\b(request_)?toll(s?)\b' '${1}charge$2' $ALL
r '\bParts\b' RuleClientLimits $SRC; r '\bRefuser::Part\b' RefusingLimit::Client $SRC; r '\bSelf::Part\b' Self::Client src/rules.rs; r '(?<=    )Part\(Part\)' 'Client(Part)' src/rules.rs; r '\bPart\b' RuleKey $SRC
r '\bhas_parts\b' has_client_quota src/rules.rs; r '\bparts\b(?!,)' clients src/rules.rs; r '\bpart\b' key src/rule_client_limits.rs src/rules.rs
r '\bEach(?=::(Each|new|\{)|$|;)' ClientLimits src/limits.rs; r '(?<=each: )Each\b|(?<=client_limits::)Each\b' ClientLimits src/limits.rs; r '(struct|impl) Each\b' '$1 ClientLimits' src/client_limits.rs
r '\blimits\.each\b' limits.clients src/limits.rs src/admission.rs $H src/meters.rs src/sample.rs src/saver.rs src/demo.rs $IT; r '\bself\.each\b' self.clients src/limits.rs; r '\beach: ClientLimits' 'clients: ClientLimits' src/limits.rs; r 'Self \{ all, each,' 'Self { all, clients,' src/limits.rs; r 'let each = ClientLimits' 'let clients = ClientLimits' src/limits.rs
r '\bShared\b' SharedLimit src/rules.rs src/shared_limit.rs; r '\bShares\b' FairQueue $SRC; r '(?<=[.( ])shares\b(?=[.:,)]| =)' fair_queue src/limits.rs src/rules.rs src/shared_limit.rs src/admission.rs src/meters.rs src/sample.rs $IT
r '\bRefuser\b' RefusingLimit $SRC; r '\brefuser\b' refused_by $SRC; r '\bRefusee\b' RefusedClient $SRC; r '\brefusee\b' refused_client $SRC
r '\bClaim\b' Admission src/admission.rs $H tests/it/overload.rs; r '\bclaim\b' admission $H; r '\bPass\b' Admitted $SRC; r '\bits_own_doing\b' as_own_refusal src/admission.rs; r '\btoo_late\b' check_estimate src/admission.rs; r '\bUnused\b' RefundOnDrop src/admission.rs
r '\bforget_old\b' restore_expired $SRC; r '\bheed\b(?=\(&connection|\(limits: &L|\};)' follow_upstream src/follow_upstream.rs $H
r '\btells_always\b' reports_always $SRC; r '\b(config|new|old)\.global\b' '$1.quota' $SRC; r '\bglobal(?=: )' quota src/config.rs src/file.rs
# 3. handler and its replies
r '\bTurned\b' LocalReply $H; r '\bturned: Rejected' 'rejected: Rejected' $H; r '\bturned\.(refuser|refused_by|by|why)\b' 'rejected.$1' $H; r '\bturned\b' reply $H; r '\bturn\(' 'record_reply(' $H; r '\bAnswered\b(?=, Infallible| =)' HandlerResponse $H
r '\btold\(' 'rate_limits(' $H src/rules.rs; r '\bdid_not_come\b' upload_failed $H; r '\bfront\(' 'handler(' $H src/gateway.rs; r '\bhandler::front\b' handler::handler src/gateway.rs; r '\breceive\(' 'handle(' $H
# 4. connections
r '\bAnswers\b' HttpService $SRC; r '\bmeet_unlimited\b' make_unlimited_session src/gateway.rs; r '\bmeet\b' make_session src/gateway.rs src/server.rs
r '\bPlaces\b(?=[:;({, ])(?! for)' StreamPermits src/stream_permits.rs src/gateway.rs src/session.rs; r '\bPlace\b' StreamPermit src/stream_permits.rs; r '\bplaces\b' permits src/server.rs src/gateway.rs src/session.rs src/stream_permits.rs; r '\bplace\b' permit src/server.rs src/session.rs src/stream_permits.rs
r '\bPlace\b' ListenConfig src/gateway.rs src/main.rs src/demo.rs tests/it/world.rs; r '\bplace\b' listen_config src/gateway.rs src/main.rs src/demo.rs; r '\bPlace\b' RefusalKey src/refusals.rs
r '\bAddresses\b' ConnectionLimit src/connection_limit.rs src/stream_permits.rs src/gateway.rs; r '\bCounted\b' ConnectionGuard src/connection_limit.rs src/stream_permits.rs src/connection.rs; r '\bCounted\b' RequestGuard src/counters.rs; r '([.]|fn )enter\(' '$1try_acquire(' src/connection_limit.rs src/stream_permits.rs src/gateway.rs src/session.rs; r '\bmost\b(?!\.)' max src/connection_limit.rs src/timeout_body.rs
r '\bSent\b' StreamResponseBody src/streams.rs src/session.rs; r '\bSending\b' SendProgress src/streams.rs; r '\bSENDING\b' SEND_PROGRESS src/streams.rs; r '\bUnanswered\b' PendingRequest src/streams.rs; r '\bOpen\b' OpenStream src/streams.rs; r '\btoo_many\b' stream_refused src/session.rs; r '\bno_handshake\b' log_handshake_error src/session.rs
r '\bReserve\b' FdReserve src/open_files.rs src/server.rs; r '\bgive\(' 'close_one(' src/open_files.rs src/server.rs
r '\bEnding\b' ShutdownSignal src/main.rs src/demo.rs; r '\bcome\(' 'received(' src/main.rs src/demo.rs
# 5. upstream
r '\bWay\b' ProxyInner src/proxy.rs; r '\bUpstream\b(?=[ {:;,])' UpstreamClients src/proxy.rs src/gateway.rs tests/it/overload.rs
r '\bAsked\b' UpgradeRequest $SRC; r '\basked\b(?! for)' upgrade src/proxy.rs; r '\bis_met\b' is_accepted_by $SRC; r '(upgrade\.|fn )meet\b' '$1accept' src/tunnel.rs src/proxy.rs; r '\bAfterwards\b' PendingTunnel $SRC; r '\bafterwards\b' pending_tunnel $SRC; r '\bheard\b(?! from)' last_activity src/tunnel.rs
r '\bWhole\b' CompleteBody $SRC; r '\bLent::given\b|(?<=fn )given\b' GIVEN $SRC; r 'fn GIVEN' 'fn last_attempt' $SRC; r 'GIVEN' RetryBody::last_attempt $SRC; r '\bLent\b' RetryBody $SRC
r '\bStallGuard\b' TimeoutBody $SRC; r '\bStalled\b' TimeoutError $SRC; r '\bhas_stalled\b' has_timed_out $SRC; r '\bis_late\b' upstream_timeout src/proxy.rs
r '\bSpeaks\b' UpstreamProtocol $SRC; r '\bspeaks\b(?=\(|:| ==| \{)' upstream_protocol src/connector.rs src/config.rs src/proxy.rs src/checker.rs; r '\bToUpstream\b' HttpClient $SRC; r '\bTimed\b' TimeoutConnector src/connector.rs; r '\bis_own_lack\b' is_local_resource_error $SRC
r '\bBusy\b' ActiveRequest src/backend.rs src/backends.rs src/tunnel.rs src/proxy.rs; r '\binto_busy\b' into_active $SRC; r '\bBusy\b' TopClient src/client_limits.rs src/sample.rs; r '\bChosen\b' Selected $SRC; r '\bchosen\b' selected src/proxy.rs src/backends.rs; r '\bchoose(_other|_among)?\(' 'select$1(' src/backends.rs src/proxy.rs
r '\bSeen\b' BackendStatus src/backends.rs src/meters.rs src/sample.rs; r '(\.|fn )seen\(' '$1statuses(' src/backends.rs src/meters.rs src/sample.rs $IT; r '\bleft\(' 'log_unhealthy(' src/backends.rs src/checker.rs
# 6. what is measured
r '\bObserved\b' Stats $ALL; r '\bobserved\.calls\b' observed.upstream $SRC; r '\bobserved\b' stats $ALL; r '\bself\.calls\b' self.upstream src/stats.rs; r '\bcalls(?=: Calls)' upstream src/stats.rs; r '\bCalls\b' UpstreamStats $SRC; r '\bCallCounts\b' UpstreamCounts $SRC; r '\bFault\b' UpstreamError $SRC
r '\bReading\b' HistogramSnapshot $SRC; r '\b(latency|waits|histogram)\.read\(\)' '$1.snapshot()' src/upstream_stats.rs src/stats.rs src/trend.rs src/histogram.rs; r 'fn read\(&self' 'fn snapshot(&self' src/histogram.rs
r '\bTarget\b' RequestLine src/record.rs src/access_log.rs; r '\bEnd\b' ResponseEnd src/record.rs src/access_log.rs; r '\bNow\b' StatusSnapshot src/status.rs src/sample.rs
# 7. path, prompt, file
r '\bReadings\b' PathVariants src/path_variants.rs src/route.rs; r '\b(matches|is)_loosely\b' matches_normalized src/route.rs src/path_variants.rs; r '\bloosely\b(?=[(,;}])' normalize src/route.rs src/path_variants.rs src/prompt.rs; r '\bare_loose\b' are_normalized src/route.rs; r '\bis_loose\b' is_normalized src/route.rs; r '\bloose\b' normalized src/route.rs src/path_variants.rs
r '\bis_plain\b(?=\(path)' is_unambiguous src/path_variants.rs; r '\bis_plain\b' is_unambiguous src/route.rs; r '\bpath_variants::is_plain\b' path_variants::is_unambiguous src/prompt.rs; r '\(loosely\)' '(normalize)' src/path_variants.rs; r '\[loosely\]' '[loosely](normalize)' src/route.rs
r '\bPrice\b' RoutePolicy src/route.rs $H; r '\bprice(_of|_by|_at)?\b' 'policy$1' src/route.rs $H; r '\bUndecidable\b' BadEscape $SRC; r '\bCount\b' TokenCount src/token_count.rs src/prompt.rs; r '\bPrompts\b' PromptCount $SRC
r '\bAt\b(?=[<{,}]| \{)' Located src/problem.rs src/config.rs src/file.rs src/file/checks.rs src/file/access_log.rs; r '\bnowhere\b' unlocated $SRC; r '\bcheck_refilled\b' check_shared_quota $SRC; r '\bcheck_keyed\b' check_client_quota $SRC; r '\bWrong\b' CertificateError src/certificate.rs src/file/tls.rs
r '\bWatch\b' FileWatcher src/reload.rs src/main.rs; r '\bTaken\b' Debounce src/reload.rs; r '\bTexts\b' FileContents src/reload.rs; r '\bNamed\b' NamedFiles src/reload.rs; r '\bis_told\b' is_forced src/reload.rs; r '\bput_in_force\b' apply src/reload.rs
# 8. constants and waits
r '\bLAST_WORDS\b' REFUSAL_GRACE src/gateway.rs; r '\bFAREWELL\b' GOAWAY_GRACE src/session.rs; r '\bLATE_COMERS\b' ACCEPT_GRACE src/server.rs; r '\bPAUSE\b' ACCEPT_RETRY src/server.rs; r '\bLAST_LINES\b' FLUSH_TIMEOUT src/access_log.rs; r '\bSHAMELESS\b' ABUSER_RETRY src/demo.rs
r '\bMOST_PLACES\b' MAX_ENTRIES src/refusals.rs; r '\bMOST_(?=[A-Z])' MAX_ $SRC; r '\bMOST\b' MAX_TOKENS src/usage.rs; r '\bLONGEST_NAME\b' MAX_NAME_LEN src/prompt.rs; r '\bLONGEST\b' MAX_LEN src/jwt.rs src/usage_scanner.rs
r '\ballowed\b' timeout src/proxy.rs src/session.rs src/streams.rs src/tunnel.rs src/upload.rs; r '\ballowed\b' max_wait src/admission.rs $H src/rules.rs src/fair_queue.rs src/time_left.rs tests/it/overload.rs
# 9. tests
r '\bWorld\b' TestGateway $IT; r '\bFOR_EVER\b' HANG_LIMIT $IT; r '\ba_moment\b' short_pause $IT; r '\bstrangers\(' 'unlisted_keys(' tests/it/sharing.rs
