"""Returned promises are promised anew for the very instants: serial numbers of promised tokens."""
import leases as M
from leases import *
import sys
MODE="list"   # list | one | none | old
class SStore(Store):
    def __init__(s, rate, burst, H=0.25, most=None, credit=False):
        super().__init__(rate, burst, H); s.S=0; s.holes=[]; s.most={"list":99,"one":1,"none":0}[MODE] if most is None else most; s.lost=0; s.credit=credit; s.c=0
    def mint(s, now):
        s.level = min(s.burst, s.level + (now-s.at)*s.rate); s.at = now
        m = s.minted(); keep=[]
        for a,b in s.holes:
            if a+1 <= m+1e-9:
                x=min(b,math.floor(m+1e-9))-a; s.lost+=x; a+=x; s.c+=x
            if b>a: keep.append((a,b))
        s.holes=keep
        s.c=min(s.c, s.burst//2) if s.credit else 0
        if s.level>=0: s.level=min(s.burst,s.level+s.c); s.c=0
    def minted(s): return s.S+min(0,s.level)     # fractional
    def back(s, run, now):
        s.mint(now)
        for a,b in run:
            m=s.minted()
            x=max(a, min(b, math.floor(m+1e-9)))
            if x>a:
                late=x-a
                if s.level>=0: s.level=min(s.burst,s.level+late)
                else:
                    s.lost+=late
                a=x
            if a>=b: continue
            if b==s.S:
                s.S=a; s.level+=b-a
                while s.holes and s.holes[-1][1]==s.S: p,q=s.holes.pop(); s.S=p; s.level+=q-p
            else:
                s.holes.append((a,b)); s.holes.sort()
                if len(s.holes)>s.most: r=s.holes.pop(0); s.lost+=r[1]-r[0]
    def ask(s, node, now, want, first, age, useful, back, H, last=-1):
        s.asks+=1; s.mint(now)
        H=min(1.0,max(s.H,H))
        s.places={k:p for k,p in s.places.items() if now<=p[2]+max(GRACE,p[3]) and k!=node}
        s.busy={k:t for k,t in s.busy.items() if now-t<2*H}; s.busy[node]=now
        n,since=len(s.busy),now-age
        ahead=sum(p[1] for p in s.places.values() if p[0]<since)
        reach=min(useful,H)
        m=s.minted()
        part=math.ceil((max(s.level,0)+s.rate*H)/n)
        by=math.floor(m+s.rate*reach+1e-9)             # tokens up to this number come in time
        tail=s.level+s.rate*reach+1e-9
        runs=[(p,min(q,by)) for p,q in s.holes if min(q,by)>p]
        inhole=sum(q-p for p,q in runs)
        avail=tail-ahead if s.level>=0 else s.c+inhole+max(0,tail)-ahead+1e-9
        def fit(x): return want if want<=min(x,avail) else first if first<=min(x,avail) else 0
        run=[]; given=0; delays=[]
        if s.level<0 and fit(s.c):
            given=fit(s.c); s.c-=given; delays=[0.0]*given; run=[None]*given
        if not given and s.level<0:
            for p,q in runs:
                if p>=last and fit(q-p):
                    given=fit(q-p)
                    i=[k for k,r in enumerate(s.holes) if r[0]==p][0]; s.holes[i]=(p+given,s.holes[i][1])
                    if s.holes[i][0]==s.holes[i][1]: del s.holes[i]
                    run=list(range(p+1,p+given+1)); delays=[max(0.0,(x-m)/s.rate) for x in run]; break
        if not given:
            given=fit(tail)
            for k in range(given):
                d=(k+1-s.level)/s.rate
                if d<=0: delays.append(0.0); run.append(None)
                else: s.S+=1; delays.append(d); run.append(s.S)
            s.level-=given
        s.lowest=min(s.lowest,s.level)
        wait=max(0.0,(first+ahead-s.level)/s.rate)
        if given==0 and wait<=useful: s.places[node]=(since,first,now+min(max(0.0,wait-H),max(CAP,age/2)),H/2.5)
        return given,delays,wait,part,run
class SNode(Node):
    def __init__(n,*a): super().__init__(*a); n.serial={}
    def step(n):
        # override returning
        n._ret()
        super().step()
    def _ret(n): pass
    def arrive(n,want,first,age,useful,back,lack):
        last=max([l[1] for l in n.leases if l[1]],default=-1)
        a=n.store.ask(n.name,n.sim.now,want,first,age,useful,back,n.horizon(),last)
        n.sim.at(n.sim.now+n.sim.rtt()/2,n.reply,*a)
    def reply(n,given,delays,wait,part,run):
        if n.dead: return
        now=n.sim.now; n.out=False; n.part=part
        n.rt=max(now-n.asked,0.7*n.rt+0.3*(now-n.asked))
        n.leases+=[L(now+d,r) for d,r in zip(delays,run)]
        if given==0:
            H=min(1.0,max(n.store.H,n.horizon()))
            gone=[c for c in n.uncovered() if c.deadline<now+wait]
            n.refused+=len(gone); n.wait=deque(c for c in n.wait if c not in gone)
            n.retry_at=now+min(max(0.0,wait-H),max(CAP,n.age/2))
        else: n.retry_at=0
        n.step()
class L(float):
    def __new__(c,t,s): x=float.__new__(c,t); x.s=s; return x
    def __getitem__(x,i): return x.s if i==1 else float(x)
class Give:
    """store facade for give_back of runs"""
def give_back(s,k,sim): raise 0
# Node.step calls n.store.give_back(len(leases), sim): patch via subclass
def step(n):
    if n.dead: return
    now=n.sim.now
    if True:
        keep=deque(c for c in n.wait if c.deadline>=now); n.refused+=len(n.wait)-len(keep); n.wait=keep
        n.leases.sort()
        while n.wait and len(n.leases)>=n.wait[0].cost and n.leases[n.wait[0].cost-1]<=now+1e-12:
            c=n.wait.popleft(); del n.leases[:c.cost]
            n.grants.append((now,c.cost)); n.waits.append(now-c.at)
            if c.again: n.sim.at(now,c.again)
        if not n.wait and n.leases:
            runs=[]; there=0
            for l in n.leases:
                if l.s is None: there+=1
                elif runs and runs[-1][1]==l.s-1: runs[-1]=(runs[-1][0],l.s)
                else: runs.append((l.s-1,l.s))
            if ONERUN and len(runs)>1: runs=runs[-1:]
            n.leases=[]
            n.sim.at(now+n.sim.rtt()/2,n.store.returned,runs,there,n.sim)
    Node.step(n)
ONERUN=True
SNode.step=step
def returned(s,runs,there,sim):
    s.asks+=1; s.mint(sim.now)
    if s.level>=0: s.level=min(s.burst,s.level+there)
    s.back(runs,sim.now)
SStore.returned=returned
class ONode(Node): pass

def hidden(nodes, per_s, rate, burst, patience, T=60, rtt=0.001, seed=1, kind="new", cost=lambda r:1, jit=0, late=False, **kw):
    rj=random.Random(seed+7)
    sim = Sim((lambda: rtt+rj.random()*jit), seed)
    st = SStore(rate, burst, **kw) if kind=="new" else Store(rate,burst)
    ns = [(SNode if kind=="new" else Node)(sim, st, i) for i in range(nodes)]; rng = random.Random(seed)
    def arrivals(n):
        p=patience if not callable(patience) else patience(rng)
        n.claim(cost(rng), math.inf); c = n.wait[-1] if n.wait else None
        if c is not None and c.at == sim.now: sim.at(sim.now + p, leave, n, c)
        sim.at(sim.now + rng.expovariate(per_s), arrivals, n)
    def leave(n, c):
        if c in n.wait:
            n.wait.remove(c); n.refused += 1
            if not n.wait: sim.at(sim.now + sim.rtt()/2, lambda: (st.places.pop(n.name, None), setattr(st,'asks',st.asks+1)))
            if not n.wait: n.retry_at = 0
            n.step()
    for n in ns: sim.at(rng.expovariate(per_s), arrivals, n)
    g, rng2, ev, got = Gcra(rate, burst), random.Random(seed), [], 0
    for i in range(nodes):
        t = rng2.expovariate(per_s)
        while t < T: heapq.heappush(ev, (t, t + (patience if not callable(patience) else patience(rng2)), cost(rng2))); t += rng2.expovariate(per_s)
    while ev:
        t, d, c = heapq.heappop(ev); w = g.ask(t, c)
        if w == 0: got += c
        elif t + w <= d: heapq.heappush(ev, (t + w, d, c))
    sim.run(T); mine = sum(c for n in ns for _, c in n.grants)
    print(f"{kind:4} {nodes} x {per_s}/s on {rate}/s burst {burst}, {patience if callable(patience) else patience*1000}: {mine/T:.2f}/s, GCRA {got/T:.2f} ({100*mine/got:.1f} %); asks {st.asks/T:.0f}/s, excess {excess([x for n in ns for x in n.grants], rate, burst):.2f} lost {getattr(st,'lost',0)/T:.2f}/s")
if __name__=="__main__":
    MODE=sys.argv[1]; kind="old" if MODE=="old" else "new"
    kw={"credit":True} if len(sys.argv)>2 else {}
    for a in [(20,.5,2,2,.3),(20,2,10,5,.1),(8,5,10,10,.05),(30,2,30,30,.1),(50,10,200,50,.05,20),(20,2,10,1,.1),(20,5,50,5,.1),(20,10,50,5,.02),(20,5,50,5,.2),(8,5,10,1,.05),(8,5,10,1,.3),(10,20,50,5,lambda r:r.random()*.4),(10,20,50,1,lambda r:r.random()*.4),(40,50,1000,10,.05,10),(40,50,1000,10,lambda r:r.random()*.3,10)]:
        hidden(*a,kind=kind,**kw)
