import sys; sys.path.insert(0,'/tmp/ps')
import torch,time; torch.set_num_threads(1)
from proxode.samples.field import BatchField
from proxode.samples.solve import Batch, run, STATUSES
from proxode.structure import Structure
from proxode.solution import Stats
mu=torch.logspace(0,3,512,dtype=torch.float64)
def vdp(t,y): return torch.stack([y[:,1], mu*(1-y[:,0]**2)*y[:,1]-y[:,0]],1)
y0=torch.tensor([2.,0.],dtype=torch.float64).repeat(512,1)
def go(tol,T=10.,grad=False,n_out=1,y0=y0):
    st=Stats(); B=len(y0)
    f=BatchField(vdp,Structure.of(y0),st,torch.ones(B,dtype=torch.float64))
    saves=torch.linspace(0,T,n_out+1,dtype=torch.float64)[1:,None].expand(n_out,B)
    b=Batch(f,y0,torch.zeros(B,dtype=torch.float64),saves,torch.full((B,1),tol,dtype=torch.float64),torch.full((B,1),tol,dtype=torch.float64),torch.full((B,),0.5*tol**(1/6),dtype=torch.float64))
    with torch.set_grad_enabled(grad):
        a=time.perf_counter(); out,place=run(b); return torch.stack(out),place,st,time.perf_counter()-a
ref,p,st,s=go(1e-10); print(st.nfe_forward,s)
for tol in (1e-3,1e-6):
    y,p,st,s=go(tol)
    e=((y[-1]-ref[-1])/(tol+tol*ref[-1].abs())).square().mean(1).sqrt()
    print(tol,round(s,3),st.nfe_forward,'max steps',int(p.counts.steps.max()),'mean',float(p.counts.steps.double().mean()),'err/tol median',float(e.median()),'max',float(e.max()),'n>10',int((e>10).sum()),p.code.unique().tolist())
