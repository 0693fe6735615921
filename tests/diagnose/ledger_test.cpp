#include "diagnose/answer/diagnosis.h"
#include "diagnose/timeline/frames.h"

#include <fmt/core.h>
#include <gtest/gtest.h>

#include <numeric>

#include "diagnose/simulated_cases.h"

namespace millrace::diagnose {
namespace {

constexpr double kOneSecond = 1e6;  ///< in microseconds

Stack model(const Stack& callers) {
    Stack stack{torch_line("nn/modules/linear.py", "forward"), {"/home/u/model.py", 81, "forward", false}};
    stack.insert(stack.end(), callers.begin(), callers.end());
    return stack;
}

const Stack kTrain{user_line(30, "train"), user_line(90, "main"), user_line(99)};
const Stack kTest{user_line(60, "test"), user_line(92, "main"), user_line(99)};
const Stack kSetUp{user_line(10, "load_data"), user_line(85, "main"), user_line(99)};

void train_steps(SimulatedProgram& p, int steps) {
    for (int step = 0; step < steps; ++step) {
        p.at(model(kTrain));
        for (int i = 0; i < 8; ++i) p.launch(fmt::format("gemm_forward{}", i % 3), 300);
        p.work(8'000);
        p.at({torch_line("optim/adamw.py", "step"), user_line(33, "train"), user_line(90, "main"), user_line(99)});
        p.launch("multi_tensor_apply_kernel", 200);
        p.work(2'000);
        p.item();
    }
}

/// Two seconds of start-up, one of compiling, a window of training, then what `after` does with nothing recorded but samples.
template <class After>
Timeline run_of(const After& after) {
    SimulatedProgram p({});
    p.at(kSetUp);
    p.work(1 * kOneSecond);
    p.at({torch_line("_inductor/config.py", "Config"),
          torch_line("_inductor/scheduler.py", "<module>"),
          {"<frozen importlib._bootstrap>", 241, "_call_with_frames_removed", false},
          torch_line("__init__.py", "<module>"),
          user_line(1)});
    p.work(1 * kOneSecond);  // is imported, and compiles nothing
    p.at({torch_line("_dynamo/symbolic_convert.py", "run_node"), torch_line("_dynamo/convert_frame.py", "_compile"),
          torch_line("_dynamo/eval_frame.py", "_fn"), user_line(30, "train"), user_line(90, "main"), user_line(99)});
    p.work(1 * kOneSecond);
    const Time window = static_cast<Time>(p.now_us() * 1e3);
    train_steps(p, 60);
    const Time end = static_cast<Time>(p.finish_us() * 1e3);
    p.timeline.windows.push_back({window, end, kProcess});
    after(p);
    const Time over = static_cast<Time>(p.now_us() * 1e3) + 300'000'000;
    Timeline timeline = p.take();
    std::erase_if(timeline.calls, [&](const Call& call) { return call.begin >= end; });
    std::erase_if(timeline.work, [&](const Work& work) { return work.begin >= end; });
    timeline.run = {0, over, kProcess};
    return timeline;
}

double seconds_of(const RunLedger& run, Activity what) { return (*run.seconds)[static_cast<std::size_t>(what)]; }

TEST(RunLedger, SumsToTheWallTimeAndTellsWhatTheRunDid) {
    const Timeline timeline = run_of([](SimulatedProgram& p) {
        p.at(kTest);
        p.work(0.2 * kOneSecond);  // its loader: no model on the stack yet
        p.at(model(kTest));
        p.work(1.8 * kOneSecond);
        train_steps(p, 100);
        p.at({torch_line("serialization.py", "save"), user_line(95, "main"), user_line(99)});
        p.work(0.5 * kOneSecond);
        train_steps(p, 100);
        p.at({user_line(97, "main"), user_line(99)});
        p.work(0.4 * kOneSecond);
    });
    const RunLedger run = diagnose(timeline).run;
    ASSERT_TRUE(run.wall_s && run.seconds);
    EXPECT_NEAR(*run.wall_s, static_cast<double>(timeline.run.end) * 1e-9, 1e-9);
    EXPECT_NEAR(std::accumulate(run.seconds->begin(), run.seconds->end(), 0.0), *run.wall_s, 1e-6);
    EXPECT_NEAR(seconds_of(run, Activity::kStartUp), 2, 0.1);
    EXPECT_NEAR(seconds_of(run, Activity::kCompiling), 1, 0.05);
    EXPECT_NEAR(seconds_of(run, Activity::kEvaluation), 2, 0.1);
    EXPECT_NEAR(seconds_of(run, Activity::kCheckpoints), 0.5, 0.05);
    EXPECT_NEAR(seconds_of(run, Activity::kTraining), 260 * 0.0104, 0.2);
    EXPECT_NEAR(seconds_of(run, Activity::kOther), 0.7, 0.1) << "what is printed at the end, and until the process is gone";
}

TEST(RunLedger, LinesThatTrainingSeldomRunsThroughAreTraining) {
    const Timeline timeline = run_of([](SimulatedProgram& p) {
        p.at({user_line(36, "train"), user_line(90, "main"), user_line(99)});  // now and then
        p.work(0.5 * kOneSecond);
        p.at({torch_line("optim/lr_scheduler.py", "step"), user_line(33, "train"), user_line(90, "main"), user_line(99)});
        p.work(0.5 * kOneSecond);
        p.at({user_line(70, "draw"), user_line(94, "report"), user_line(99)});
        p.work(0.3 * kOneSecond);
        train_steps(p, 20);
    });
    const RunLedger run = diagnose(timeline).run;
    ASSERT_TRUE(run.seconds);
    EXPECT_NEAR(seconds_of(run, Activity::kTraining), 80 * 0.0104 + 1, 0.15);
    EXPECT_NEAR(seconds_of(run, Activity::kOther), 0.6, 0.1);
    EXPECT_NEAR(seconds_of(run, Activity::kEvaluation), 0, 1e-9);
}

TEST(RunLedger, IsNotMeasuredWithoutSamples) {
    Timeline timeline = run_of([](SimulatedProgram&) {});
    ASSERT_TRUE(diagnose(timeline).run.seconds);
    timeline.samples.clear();
    const RunLedger unsampled = diagnose(timeline).run;
    EXPECT_TRUE(unsampled.wall_s);
    EXPECT_FALSE(unsampled.seconds);
    timeline.run = {};
    EXPECT_FALSE(diagnose(timeline).run.wall_s);
}

TEST(RunLedger, CompiledCodeThatRunsIsNoCompiling) {
    struct Known {
        const char *file, *function;
        bool compiles;
    };
    constexpr Known kKnown[] = {
        {"_dynamo/eval_frame.py", "_fn", false},
        {"_dynamo/convert_frame.py", "_compile", true},
        {"_inductor/compile_fx.py", "compile_fx", true},
        {"_inductor/compile_fx.py", "run", false},
        {"_inductor/cudagraph_trees.py", "run", false},
        {"_inductor/output_code.py", "__call__", false},
        {"_inductor/scheduler.py", "codegen", true},
        {"_inductor/runtime/triton_heuristics.py", "run", false},
        {"_inductor/runtime/triton_heuristics.py", "benchmark_all_configs", true},
        {"nn/modules/module.py", "_call_impl", false},
    };
    for (const Known& known : kKnown)
        EXPECT_EQ(is_compiler(torch_line(known.file, known.function)), known.compiles) << known.file << " " << known.function;
    const auto installed = [](const char* file, const char* function) {
        return Frame{std::string("/usr/lib/python3/dist-packages/") + file, 1, function, false};
    };
    EXPECT_TRUE(is_compiler(installed("jax/_src/compiler.py", "backend_compile")));
    EXPECT_FALSE(is_compiler(installed("jax/_src/pjit.py", "cache_miss")));
    EXPECT_TRUE(is_compiler(installed("triton/compiler/compiler.py", "compile")));
    EXPECT_FALSE(is_compiler(user_line(3, "compile")));
    EXPECT_TRUE(is_checkpoint(torch_line("serialization.py", "_save")));
    EXPECT_FALSE(is_checkpoint(torch_line("serialization.py", "_load")));
    EXPECT_FALSE(is_checkpoint(user_line(3, "save")));
}

}  // namespace
}  // namespace millrace::diagnose
