// What the doctor says of a trace that PyTorch's profiler made on an H200: tests/goldens/README.md says of what.

#include <gtest/gtest.h>

#include <algorithm>

#include "diagnose/diagnose.h"
#include "diagnose/reading/kineto_reader.h"
#include "places.h"

namespace millrace::diagnose {
namespace {

/// Calls what the traced program calls, on the same lines.
constexpr const char* kSource = R"(# line 1
import numpy as np
import torch
from bench import CURED, Clock, STEPS, network, optimizer, train_step

model = network()
optim = optimizer(model)
data, labels = torch.randn(4, 4), torch.randint(0, 10, (4,))


def choose_rows(step):
    scores = np.random.default_rng(step).random(4)
    return torch.from_numpy(np.argsort(scores)).pin_memory().cuda()


for _ in range(3):
    train_step(model, optim, data, labels)
total = 0.0
with Clock():
    for step in range(STEPS):
        rows = choose_rows(step)
        loss = train_step(model, optim, data[rows], labels[rows])
        total += loss if CURED else loss.item()
print(float(total) / STEPS)
)";

Timeline trace(const FindSources& sources) {
    const io::Path path = testing::source_root() / "tests/goldens/traces/item_every_step.json.gz";
    auto source = io::open_source(path);
    EXPECT_TRUE(source.ok()) << (source.ok() ? "" : source.error().text());
    if (!source.ok()) return {};
    auto timeline = read_kineto(**source, path, {}, {}, sources);
    EXPECT_TRUE(timeline.ok()) << (timeline.ok() ? "" : timeline.error().text());
    return timeline.ok() ? std::move(*timeline) : Timeline{};
}

#if MILLRACE_HAVE_ZLIB
#define SKIP_PACKED()
#else
#define SKIP_PACKED() GTEST_SKIP() << "the golden trace is packed, and this build has no zlib"
#endif

TEST(GoldenTraces, AReadInEveryStepIsFoundAtItsLineInTheSource) {
    SKIP_PACKED();
    std::vector<std::string> asked;
    const Diagnosis diagnosis = diagnose(trace([&](const std::string& name) -> std::vector<SourceFile> {
        asked.push_back(name);
        if (name != "item_every_step.py") return {};
        return {{kSource, false}};
    }));
    ASSERT_FALSE(diagnosis.findings.empty());
    const Finding& first = diagnosis.findings.front();
    EXPECT_EQ(first.kind, Kind::kHostSync);
    ASSERT_TRUE(first.where);
    EXPECT_EQ(first.where->file, "item_every_step.py");
    EXPECT_EQ(first.where->line, 23);
    EXPECT_NEAR(diagnosis.step_ms, 28.5, 0.5);
    EXPECT_LT(diagnosis.breakdown_ms[static_cast<std::size_t>(Owner::kUnexplained)], 0.01 * diagnosis.step_ms);
    EXPECT_EQ(std::ranges::count(asked, "item_every_step.py"), 1);
}

TEST(GoldenTraces, ASourceThatWasWrittenLaterIsNotUsed) {
    SKIP_PACKED();
    // The trace is of 16 November 2026.
    for (const auto& [written, line] : {std::pair{std::int64_t{1'794'700'000}, 23}, {std::int64_t{1'794'900'000}, 0}}) {
        const Diagnosis diagnosis = diagnose(trace([when = written](const std::string& name) -> std::vector<SourceFile> {
            if (name != "item_every_step.py") return {};
            return {{kSource, false, {}, when * 1'000'000'000}};
        }));
        ASSERT_FALSE(diagnosis.findings.empty());
        ASSERT_TRUE(diagnosis.findings.front().where);
        EXPECT_EQ(diagnosis.findings.front().where->line, line) << written;
    }
}

TEST(GoldenTraces, WithoutItsSourceTheFunctionIsNamed) {
    SKIP_PACKED();
    const Diagnosis diagnosis = diagnose(trace({}));
    ASSERT_FALSE(diagnosis.findings.empty());
    ASSERT_TRUE(diagnosis.findings.front().where);
    EXPECT_EQ(diagnosis.findings.front().kind, Kind::kHostSync);
    EXPECT_EQ(diagnosis.findings.front().where->file, "item_every_step.py");
    EXPECT_EQ(diagnosis.findings.front().where->line, 0);
    EXPECT_TRUE(std::ranges::any_of(diagnosis.remarks, [](const std::string& remark) {
        return remark.find("lines are those where functions begin") != std::string::npos;
    }));
}

}  // namespace
}  // namespace millrace::diagnose
