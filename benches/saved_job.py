#!/usr/bin/env python3
"""How long `telem replay` takes to listen, and to answer twelve panels of a day and of the last hour, six at a time as browsers ask.

    saved_job.py TELEM DIR [day]      day: asks for the day first

DIR is what `cargo run --release -p telem-engine --example saved_job -- make DIR` wrote.
"""
import json
import re
import subprocess
import sys
import threading
import time
import urllib.request
from concurrent.futures import ThreadPoolExecutor
telem,dir=sys.argv[1],sys.argv[2]
START=1767605400; END=START+86400
def q(metric,agg,ds,rate=False,filters=None):
    d={"metric":metric,"aggregator":agg,"downsample":ds,"filters":[{"type":"regexp","tagk":"host","filter":"^(.*)$","groupBy":False}]+(filters or [])}
    if rate: d["rate"]=True; d["rateOptions"]={"counter":True,"dropResets":True}
    return d
def mode(m): return [{"type":"regexp","tagk":"mode","filter":"^(%s)$"%m,"groupBy":False}]
def panels(step):
    return [q("load_average","count",step+"-avg"),q("cpu_percent","avg",step+"-avg"),q("used_RAM","max",step+"-avg"),q("node_procs_running","sum",step+"-avg"),
     q("node_cpu_seconds_total","sum",step+"-first",True,mode("user")),q("node_cpu_seconds_total","sum",step+"-first",True,mode("system")),
     q("node_memory_AnonPages_bytes","sum",step+"-avg"),q("node_memory_MemFree_bytes","sum",step+"-avg"),
     q("node_disk_read_bytes_total","sum",step+"-first",True),q("node_disk_written_bytes_total","sum",step+"-first",True),
     q("node_network_receive_bytes_total","sum",step+"-first",True),q("node_network_transmit_bytes_total","sum",step+"-first",True)]
def cpu(pid):
    f=open(f"/proc/{pid}/stat").read().rsplit(")",1)[1].split(); return (int(f[11])+int(f[12]))/100
t0=time.monotonic()
p=subprocess.Popen([telem,"replay","--listen","127.0.0.1:0",dir],stderr=subprocess.PIPE,stdout=subprocess.DEVNULL,text=True)
url=None
for line in p.stderr:
    m=re.search(r"listening on (http\S+)",line)
    if m: url=m[1]; break
threading.Thread(target=lambda:[None for _ in p.stderr],daemon=True).start()
t1=time.monotonic(); c1=cpu(p.pid)
print(f"listening after {t1-t0:.2f} s, {c1:.2f} s of CPU")
def ask(body):
    r=urllib.request.Request(url+"/api/query",data=json.dumps(body).encode(),headers={"Content-Type":"application/json"})
    t=time.monotonic()
    a=urllib.request.urlopen(r).read(); return len(a),time.monotonic()-t
def dash(name,start,end,step):
    t=time.monotonic(); c=cpu(p.pid)
    with ThreadPoolExecutor(6) as ex: r=list(ex.map(ask,[{"start":start*1000,"end":end*1000,"msResolution":True,"queries":[x]} for x in panels(step)]))
    print(f"{name}: {time.monotonic()-t:.2f} s, {cpu(p.pid)-c:.2f} s of CPU, {sum(x[0] for x in r)} bytes, slowest {max(x[1] for x in r):.2f}")
order=[("last hour by 1m",END-3600,END,"1m"),("a day by 5m",START,END,"5m")]
if len(sys.argv)>3: order.reverse()
for o in order+order: dash(*o)
rss=[l for l in open(f"/proc/{p.pid}/status") if l.startswith(("VmHWM","VmRSS"))]; print(rss)
p.terminate(); p.wait()
