"""Networks of the layers of Millrace's cnn and shallow, in PyTorch, on data as people have it and on Millrace's split of it; one JSON object.

    own_data.py --pictures FOLDER --parts FILE --side 32 --channels 32,64 --hidden 128 --dropout 0.25 --epochs 20
    own_data.py --table FILE --target price --ignore id,demand --parts FILE --widths 128,64 --dropout 0.1

FILE is what `millrace data show PATH --list FILE` wrote. Beside each seed's score on the test part stand those of always the same answer, of a linear
model and of scikit-learn's gradient-boosted trees: accuracy, or R2 of a regression. A seed's weights are those of its least validation loss.
"""
import argparse
import csv
import json
import pathlib
import time

import numpy
import torch


def numbers(text):
    return [int(one) for one in text.split(",")]


def parts_of(file):
    """{part: indices of its samples}, and the answers by sample."""
    rows = list(csv.DictReader(open(file, newline="")))
    parts = {part: numpy.array([int(row["sample"]) for row in rows if row["part"] == part]) for part in ("train", "validation", "test")}
    return parts, {int(row["sample"]): row["answer"] for row in rows}


def read_pictures(folder, side):
    """f32 [N, 3, side, side] of all pictures by name, the whole of each with black borders."""
    from PIL import Image
    files = sorted((str(path.relative_to(folder)) for path in pathlib.Path(folder).rglob("*") if path.suffix in (".png", ".jpg")))
    images = numpy.zeros((len(files), side, side, 3), numpy.uint8)
    for i, name in enumerate(files):
        image = Image.open(pathlib.Path(folder) / name).convert("RGB")
        scale = side / max(image.size)
        width, height = (max(1, round(size * scale)) for size in image.size)
        left, top = (side - width) // 2, (side - height) // 2
        images[i, top:top + height, left:left + width] = numpy.asarray(image.resize((width, height), Image.Resampling.BOX))
    return images.transpose(0, 3, 1, 2).astype(numpy.float32) / 255


def read_table(file, target, ignore, train):
    """f32 [N, width]: numbers by mean and deviation of `train`, a 0 or 1 for each word; missing ones as Millrace fills them."""
    rows = list(csv.DictReader(open(file, newline="")))
    columns = []
    for name in rows[0]:
        if name == target or name in ignore:
            continue
        cells = [row[name] for row in rows]
        try:
            values = numpy.array([float(cell) if cell else numpy.nan for cell in cells])
            mean, deviation = numpy.nanmean(values[train]), numpy.nanstd(values[train])
            columns.append(numpy.nan_to_num((values - mean) / deviation)[:, None])
        except ValueError:
            words = sorted({cells[i] for i in train} - {""})
            columns.append(numpy.array([[cell == word for word in ("", *words)] for cell in cells]))
    return numpy.concatenate(columns, 1).astype(numpy.float32)


class Network(torch.nn.Sequential):
    """Convolutions with max pooling of two, or dense layers with batch norm, before the answer."""

    def __init__(self, given, shape, outputs):
        layers = []
        if given.pictures:
            side, last = given.side, 3
            for channels in given.channels:
                layers += [torch.nn.Conv2d(last, channels, 3, padding=1), torch.nn.MaxPool2d(2), torch.nn.ReLU()]
                side, last = side // 2, channels
            layers += [torch.nn.Dropout(given.dropout), torch.nn.Flatten(), torch.nn.Linear(last * side * side, given.hidden), torch.nn.ReLU(),
                       torch.nn.Dropout(given.dropout), torch.nn.Linear(given.hidden, outputs)]
        else:
            last = shape[1]
            for width in given.widths:
                layers += [torch.nn.Linear(last, width), torch.nn.BatchNorm1d(width), torch.nn.ReLU(), torch.nn.Dropout(given.dropout)]
                last = width
            layers.append(torch.nn.Linear(last, outputs))
        super().__init__(*layers)


def score_of(answers, predicted, classes):
    """Accuracy of logits, or R2."""
    if classes:
        return float((predicted.argmax(1) == answers).mean())
    return float(1 - ((predicted[:, 0] - answers) ** 2).sum() / ((answers - answers.mean()) ** 2).sum())


def train(given, seed, inputs, answers, parts, classes):
    torch.manual_seed(seed)
    x, y = torch.from_numpy(inputs), torch.from_numpy(answers)
    network = Network(given, inputs.shape, classes or 1)
    optimizer = torch.optim.Adam(network.parameters(), lr=given.lr)
    loss_of = torch.nn.functional.cross_entropy if classes else lambda out, want: torch.nn.functional.mse_loss(out[:, 0], want)

    def predict(part):
        network.eval()
        with torch.no_grad():
            return torch.cat([network(x[rows]) for rows in torch.from_numpy(parts[part]).split(512)])

    best, kept = float("inf"), None
    for _ in range(given.epochs):
        network.train()
        for rows in torch.from_numpy(parts["train"])[torch.randperm(len(parts["train"]))].split(given.batch):
            optimizer.zero_grad()
            loss_of(network(x[rows]), y[rows]).backward()
            optimizer.step()
        loss = float(loss_of(predict("validation"), y[parts["validation"]]))
        if loss < best:
            best, kept = loss, predict("test").numpy()
    return score_of(answers[parts["test"]], kept, classes)


def others(inputs, answers, parts, classes):
    """Scores of guessing, of a linear model and, of tables, of gradient-boosted trees."""
    from sklearn.ensemble import HistGradientBoostingClassifier, HistGradientBoostingRegressor
    from sklearn.linear_model import LogisticRegression, Ridge
    flat = inputs.reshape(len(inputs), -1)
    train_rows, test_rows = parts["train"], parts["test"]
    linear = LogisticRegression(max_iter=100) if classes else Ridge()
    found = {"guess": float((answers[test_rows] == numpy.bincount(answers[train_rows]).argmax()).mean()) if classes else 0.0,
             "linear": linear.fit(flat[train_rows], answers[train_rows]).score(flat[test_rows], answers[test_rows])}
    if inputs.ndim == 2:
        trees = HistGradientBoostingClassifier() if classes else HistGradientBoostingRegressor()
        found["trees"] = trees.fit(flat[train_rows], answers[train_rows]).score(flat[test_rows], answers[test_rows])
    return found


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--pictures")
    parser.add_argument("--table")
    parser.add_argument("--parts", required=True)
    parser.add_argument("--target", default="")
    parser.add_argument("--ignore", default="")
    parser.add_argument("--task", choices=("classification", "regression"), default="classification")
    parser.add_argument("--side", type=int, default=32)
    parser.add_argument("--channels", type=numbers, default=[32, 64])
    parser.add_argument("--widths", type=numbers, default=[128])
    parser.add_argument("--hidden", type=int, default=128)
    parser.add_argument("--dropout", type=float, default=0.0)
    parser.add_argument("--lr", type=float, default=1e-3)
    parser.add_argument("--batch", type=int, default=128)
    parser.add_argument("--epochs", type=int, default=20)
    parser.add_argument("--seeds", type=int, default=5)
    given = parser.parse_args()
    parts, words = parts_of(given.parts)
    count = max(words) + 1
    inputs = read_pictures(given.pictures, given.side) if given.pictures else read_table(given.table, given.target, given.ignore.split(","), parts["train"])
    assert len(inputs) >= count, f"{given.parts} numbers {count} samples, there are {len(inputs)}"
    if given.task == "classification":
        names = sorted(set(words.values()))
        answers = numpy.array([names.index(words[i]) if i in words else 0 for i in range(len(inputs))])
    else:
        values = numpy.array([float(words.get(i, "nan")) for i in range(len(inputs))])
        mean, deviation = values[parts["train"]].mean(), values[parts["train"]].std()
        answers = ((values - mean) / deviation).astype(numpy.float32)
    classes = len(names) if given.task == "classification" else 0
    found = others(inputs, answers, parts, classes)
    begin = time.perf_counter()
    found["torch"] = [train(given, seed, inputs, answers, parts, classes) for seed in range(given.seeds)]
    found["seconds"] = (time.perf_counter() - begin) / given.seeds
    print(json.dumps(found))


if __name__ == "__main__":
    main()
