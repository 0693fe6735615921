"""host-sync: every gradient is clipped to a norm of 1 by a number that the host reads, one read per tensor."""
from patient import Case, Training, network

case = Case(rows=12288, width=1024, blocks=16)
samples, labels = case.bank(64 if case.dry else 65536)
training = Training(case, network(case))


def clip(gradient):
    excess = gradient.norm().clamp(min=1.0)
    gradient.div_(excess if case.cured else excess.item())  # <- illness


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
