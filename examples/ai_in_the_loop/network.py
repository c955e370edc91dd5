"""A small network that learns y(x): with PyTorch where it is installed, else with NumPy."""

HIDDEN = 48
RATE = 0.01


class TorchNetwork:
    """Two layers in PyTorch, trained by its Adam."""

    name = "PyTorch"

    def __init__(self, seed):
        import torch

        torch.set_num_threads(1)
        torch.manual_seed(seed)
        self.torch = torch
        self.model = torch.nn.Sequential(torch.nn.Linear(1, HIDDEN), torch.nn.Tanh(), torch.nn.Linear(HIDDEN, 1))
        self.model = self.model.double()
        with torch.no_grad():
            self.model[0].weight.uniform_(-2, 2)
            self.model[0].bias.uniform_(-6, 6)
        self.optimizer = torch.optim.Adam(self.model.parameters(), lr=RATE)

    def learn(self, x, y):
        """One step towards ``y``; the mean squared error before it."""
        x, y = self.torch.as_tensor(x)[:, None], self.torch.as_tensor(y)[:, None]
        self.optimizer.zero_grad()
        loss = ((self.model(x) - y) ** 2).mean()
        loss.backward()
        self.optimizer.step()
        return float(loss.detach())

    def predict(self, x):
        with self.torch.no_grad():
            return self.model(self.torch.as_tensor(x)[:, None])[:, 0].numpy()


class NumpyNetwork:
    """The same in NumPy."""

    name = "NumPy"

    def __init__(self, seed):
        import numpy

        self.numpy = numpy
        rng = numpy.random.default_rng(seed)
        self.weights = [
            rng.uniform(-2, 2, (1, HIDDEN)), rng.uniform(-6, 6, HIDDEN),
            rng.uniform(-0.2, 0.2, (HIDDEN, 1)), numpy.zeros(1),
        ]
        self.moments = [[numpy.zeros_like(w), numpy.zeros_like(w)] for w in self.weights]
        self.steps = 0

    def layers(self, x):
        first, bias, second, shift = self.weights
        hidden = self.numpy.tanh(x[:, None] @ first + bias)
        return hidden, (hidden @ second + shift)[:, 0]

    def learn(self, x, y):
        """One step of Adam towards ``y``; the mean squared error before it."""
        hidden, predicted = self.layers(x)
        error = (predicted - y)[:, None]
        out = 2 * error / len(x)
        back = (out @ self.weights[2].T) * (1 - hidden**2)
        slopes = [x[None, :] @ back, back.sum(0), hidden.T @ out, out.sum(0)]
        self.steps += 1
        for weight, slope, moment in zip(self.weights, slopes, self.moments):
            moment[0] += 0.1 * (slope - moment[0])
            moment[1] += 0.001 * (slope**2 - moment[1])
            mean, square = moment[0] / (1 - 0.9**self.steps), moment[1] / (1 - 0.999**self.steps)
            weight -= RATE * mean / (self.numpy.sqrt(square) + 1e-8)
        return float((error**2).mean())

    def predict(self, x):
        return self.layers(x)[1]


def network(seed):
    try:
        return TorchNetwork(seed)
    except ImportError:
        return NumpyNetwork(seed)
