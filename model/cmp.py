import serial,sys
from serial import *
serial.MODE="list"
rows=[(20,.5,2,2,.3),(20,2,10,5,.1),(8,5,10,10,.05),(30,2,30,30,.1),(50,10,200,50,.05,20),(20,2,10,1,.1),(20,5,50,5,.1),(20,10,50,5,.02),(8,5,10,1,.05),(8,5,10,1,.3),(10,20,50,1,lambda r:r.random()*.4),(40,50,1000,10,.05,10)]
for a in rows: hidden(*a,most=8,credit=True)
c=lambda r:r.choice([1,1,1,5,10])
for a in [(20,.5,10,20,.3),(20,2,40,20,.1),(30,2,30,30,.3)]: hidden(*a,most=8,credit=True,cost=c); hidden(*a,kind="old",cost=c)
# known deadlines
def S(rate,burst): return SStore(rate,burst,most=8,credit=True)
import leases
leases.Store,leases.Node=S,SNode
print("known")
leases.open_loop(20, .5, 2, 2, .3); leases.open_loop(20, 2, 10, 5, .1); leases.open_loop(8, 5, 10, 10, .05); leases.open_loop(30, 2, 30, 30, .1)
leases.open_loop(50, 10, 200, 50, .05); leases.open_loop(20, 4, 50, 50, .05, batch=1); leases.open_loop(20, .5, 2, 2, .3, rtt=.05)
leases.open_loop(20, 1, 40, 40, .5, cost=lambda r: r.choice([1, 1, 1, 10]))
leases.open_loop(20,2,10,1,.1); leases.open_loop(20,5,50,5,.1)
leases.closed_loop(4, 20, 1000, 100);leases.closed_loop(16, 100, 1000, 100, rtt=.2, jitter=.1)
