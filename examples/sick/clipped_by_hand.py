"""host-sync: every gradient is clipped by a factor that the host computes, one read per tensor."""
from patient import Case, Training, network

LIMIT = 0.05
case = Case(rows=8192, width=1024, blocks=32)
samples, labels = case.bank(64 if case.dry else 65536)
training = Training(case, network(case))


def clip(gradient):
    if case.cured:
        gradient.mul_((LIMIT / gradient.norm()).clamp(max=1.0))
    else:
        gradient.mul_(min(1.0, LIMIT / float(gradient.norm())))  # <- illness


def step_once():
    rows = case.some(len(samples))
    loss = training.gradients(samples[rows], labels[rows])
    for parameter in training.model.parameters():
        clip(parameter.grad)
    training.optimizer.step()
    return loss


for _ in range(3):
    step_once()
with case.stopwatch():
    for _ in range(case.steps):
        loss = step_once()
print(f"loss {loss.item():.4f}")
