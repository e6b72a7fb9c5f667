import torch, math, time, sys
sys.path.insert(0,'/tmp/ps')
from proxode.samples.polynomial import lagrange, slope, difference, used
MAX=5; P=MAX+2
BIAS,BIAS_UP=3.0,6.0
GROW=torch.tensor([10.,10.,2.0,1.6,1.4,1.3],dtype=torch.float64)
def comb(w,ys): return (w[...,None]*ys).sum(0)
def rms(x): return x.square().mean(-1).sqrt()
@torch.no_grad()
def solve(f,y0,t0,t1,rtol,atol,jac,save=None,max_iter=100000):
    B,n=y0.shape; dt=y0.dtype
    share=0.5*rtol**(1/6)
    T=t1.expand(B).clone(); t=t0.expand(B).clone()
    nf=0
    s0=f(t,y0); nf+=1
    scale=atol+rtol*y0.abs()
    d0=rms(y0/scale); d1=rms(s0/scale)
    h0=torch.where((d0<1e-5)|(d1<1e-5),torch.full_like(d0,1e-6),0.01*d0/d1)
    h0=torch.minimum(h0,T-t)
    s1=f(t+h0,y0+h0[:,None]*s0); nf+=1
    d2=rms((s1-s0)/scale)/h0
    m=torch.maximum(d1,d2)
    h1=torch.where(m<=1e-15,torch.clamp(h0*1e-3,min=1e-6),(0.01/m)**0.5)
    h=torch.minimum(torch.minimum(100*h0,h1),T-t)
    ht=t.expand(P,B).clone()-torch.arange(P,dtype=dt)[:,None]  # dummies apart
    ht[0]=t
    hy=y0.expand(P,B,n).clone()
    cnt=torch.ones(B,dtype=torch.long); k=torch.ones(B,dtype=torch.long); since=torch.zeros(B,dtype=torch.long)
    rej=torch.zeros(B,dtype=torch.long)
    J=jac(t,y0); nf+=n; fresh=True
    rate=torch.ones(B,dtype=dt)
    eye=torch.eye(n,dtype=dt)
    alive=t<T
    it=0
    steps=torch.zeros(B,dtype=torch.long)
    while bool(alive.any()) and it<max_iter:
        it+=1
        end=(t+h*(1+1e-10)>=T); te=torch.where(end,T,t+h)
        te=torch.where(alive,te,t+1.0)
        ke=torch.minimum(k,cnt)
        own,w=slope(te,ht[:MAX],ke)
        g=1/own
        anchor=comb(-w*g,hy[:MAX])
        pred=comb(lagrange(te,ht[:MAX+1],torch.minimum(ke+1,cnt)),hy[:MAX+1])
        one=cnt==1
        if bool(one.any()): pred=torch.where(one[:,None],hy[0]+(te-t)[:,None]*s0,pred)
        back=torch.minimum(ke,cnt-1)
        reach=te-ht.gather(0,back[None])[0]
        wt=g/(reach+g)
        scale=atol+rtol*torch.maximum(hy[0].abs(),pred.abs())
        M=eye-g[:,None,None]*J
        LU,piv=torch.linalg.lu_factor(M)
        z=pred; tol=0.3*share
        conv=~alive; prev=None; bad=torch.zeros_like(conv); 
        for i in range(5):
            r=z-anchor-g[:,None]*f(te,z); nf+=1
            move=torch.linalg.lu_solve(LU,piv,r.unsqueeze(-1)).squeeze(-1)
            sz=rms(move/scale); rs=rms(r/scale)
            if prev is not None:
                q=torch.maximum(sz/prev[0].clamp(min=1e-300),rs/prev[1].clamp(min=1e-300))
                rate=torch.where(conv,rate,torch.maximum(0.3*rate,q))
                bad|=(~conv)&~(q<0.9)
                est=rate/(1-rate).clamp(min=1e-3)*sz
                ok=(q<1)&(est<=tol)
            else: ok=torch.zeros_like(conv)
            ok=ok|(rs<=tol)
            upd=~conv&~(rs<=tol)
            z=torch.where(upd[:,None],z-move,z)
            conv=conv|(ok&~bad); prev=(sz,rs)
            if bool((conv|bad).all()): break
        failed=~conv
        y1=z
        err=wt[:,None]*(z-pred)
        scale=atol+rtol*torch.maximum(hy[0].abs(),z.abs())
        ratio=rms(err/scale)/share
        ratio=torch.where(failed|~torch.isfinite(ratio),torch.full_like(ratio,math.inf),ratio)
        acc=alive&(ratio<=1)
        # new history for those accepted
        nt=torch.cat([te[None],ht[:-1]]); ny=torch.cat([z[None],hy[:-1]])
        sn=since+1
        # neighbours
        ncnt=torch.clamp(cnt+1,max=P)
        look=acc&(sn>ke)
        def diff_err(q):
            wts=difference(nt,q+2)
            gq=1/slope(te,ht[:MAX],torch.clamp(q,min=1))[0]
            size=gq*torch.where(used(ht,q),te-ht,torch.ones_like(ht)).prod(0)
            return rms(comb(wts*size,ny)/scale)/share
        fac=(BIAS*ratio.clamp(min=1e-10))**(-1/(ke+1).to(dt)); order=ke.clone()
        if bool(look.any()):
            for dq,bias in ((-1,BIAS),(1,BIAS_UP)):
                q=ke+dq
                okq=look&(q>=1)&(q<=MAX)&(ncnt>=q+2)
                fq=(bias*diff_err(q.clamp(1,MAX)).clamp(min=1e-10))**(-1/(q+1).to(dt))
                better=okq&(fq>fac)
                fac=torch.where(better,fq,fac); order=torch.where(better,q,order)
        grow=torch.where(((fac>1)&(fac<1.2))|((rej>0)&(fac>1)),torch.ones_like(fac),fac)
        hn=(te-t)*torch.minimum(grow.clamp(min=0.2),GROW[ke])
        hn=torch.where(end,torch.maximum(hn,h),hn)
        hr=torch.where(failed,0.25*(te-t),(te-t)*fac.clamp(0.2,0.9))
        h=torch.where(acc,hn,torch.where(alive,hr,h))
        newk=torch.where(acc,order,k)
        since=torch.where(acc,torch.where(newk==ke,sn,torch.zeros_like(sn)),since)
        k=newk
        rej=torch.where(acc,torch.zeros_like(rej),rej+1)
        ht=torch.where(acc,nt,ht); hy=torch.where(acc[:,None],ny,hy)
        t=torch.where(acc,te,t); cnt=torch.where(acc,ncnt,cnt)
        steps+=acc
        alive=t<T
        if bool((failed&alive).any()) or it%20==0:
            J=jac(t,hy[0]); nf+=n; rate=torch.ones_like(rate)
    return hy[0],dict(nf=nf,iters=it,steps=(int(steps.min()),int(steps.max()),float(steps.double().mean())))
if __name__=='__main__':
    torch.set_num_threads(1)
    mu=torch.logspace(0,3,512,dtype=torch.float64)
    def f(t,y): return torch.stack([y[:,1], mu*(1-y[:,0]**2)*y[:,1]-y[:,0]],1)
    def jac(t,y):
        with torch.enable_grad():
            y=y.detach().requires_grad_(); o=f(t,y)
            return torch.stack([torch.autograd.grad(o[:,i].sum(),y,retain_graph=True)[0] for i in range(y.shape[1])],1)
    y0=torch.tensor([2.,0.],dtype=torch.float64).repeat(512,1)
    t0=torch.tensor(0.,dtype=torch.float64); t1=torch.tensor(10.,dtype=torch.float64)
    ref,_=solve(f,y0,t0,t1,1e-10,1e-10,jac); print(_)
    for tol in (1e-3,1e-6):
        a=time.perf_counter(); y,st=solve(f,y0,t0,t1,tol,tol,jac); b=time.perf_counter()-a
        e=rms((y-ref)/(tol+tol*ref.abs()))
        print(tol,b,st,'err/tol max',float(e.max()))
    import proxode
    idx=e.topk(6).indices
    print('err/tol >10:',int((e>10).sum()), [(float(mu[i]),float(e[i]),ref[i].tolist()) for i in idx])
    for i in idx[:4]:
        m=float(mu[i]); g=lambda t,y: torch.stack([y[1], m*(1-y[0]**2)*y[1]-y[0]])
        for tol in (1e-6,1e-10):
            s=proxode.solve(g,y0[0],0.,10.,method='bdf',rtol=tol,atol=tol)
            print(m,tol,float(rms((s.ys[-1]-ref[i])/(1e-6+1e-6*ref[i].abs()))),s.stats.n_steps)
