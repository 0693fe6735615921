#include "diagnose/reading/call_lines.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>

#include "diagnose/diagnose.h"
#include "diagnose/reading/kineto_reader.h"
#include "diagnose/reading/stack_builder.h"
#include "temporary_folder.h"
#include "text_source.h"

namespace millrace::diagnose {
namespace {

TEST(CalledName, IsWhatTheSourceCallsItBy) {
    const auto name_of = [](std::string_view text) { return std::string(called_name(frame_of(text))); };
    EXPECT_EQ(name_of("<built-in method item of Tensor object>"), "item");
    EXPECT_EQ(name_of("<built-in method run_backward of torch._C._EngineBase object>"), "run_backward");
    EXPECT_EQ(name_of("<built-in method where of type object>"), "where");
    EXPECT_EQ(name_of("<built-in function linear>"), "linear");
    EXPECT_EQ(name_of("<method 'item' of 'torch._C.TensorBase' objects>"), "item");
    EXPECT_EQ(name_of("train.py(7): train_step"), "train_step");
    EXPECT_EQ(name_of("torch/_tensor.py(570): backward"), "backward");
    for (const char* nothing :
         {"<slot wrapper '__init__' of 'object' objects>", "<method-wrapper '__call__' of X object>", "<class 'int'>",
          "<built-in method ", "<built-in function >", "<built-in method __import__>", "aten::item", "nn.Module: Linear_0",
          "a.py(3): <lambda>", "a.py(3): <genexpr>", "a.py(1): <module>", "a.py(3): __call__", "a.py(3): __next__",
          "torch/nn/modules/module.py(1532): _call_impl", "torch/nn/modules/module.py(1520): _wrapped_call_impl", "<method '",
          ""})
        EXPECT_EQ(name_of(nothing), "") << nothing;
}

/// The line of the last of "innermost;...;outermost".
int line_by(std::string_view stack, std::string_view source) {
    const Stack frames = stack_of(stack);
    return call_line(frames, frames.size() - 1, PythonSource(source));
}

constexpr std::string_view kLoop = R"(import torch
def train(model, optim, x):
    loss = model(x).mean()
    loss.backward()
    optim.step()
    report(loss.item(), [v.cpu() for v in x])
    for part in (x, x):
        part.to(1)
    x.to(0)
)";

TEST(CallLine, IsThatOfTheNextFrameInwards) {
    EXPECT_EQ(line_by("aten::item;<built-in method item of Tensor object>;t.py(2): train", kLoop), 6);
    EXPECT_EQ(line_by("<built-in method run_backward of E object>;torch/_tensor.py(570): backward;t.py(2): train", kLoop), 4);
    EXPECT_EQ(line_by("t.py(90): report;t.py(2): train", kLoop), 6);
    EXPECT_EQ(line_by("<built-in method cpu of Tensor object>;t.py(6): <listcomp>;t.py(2): train", kLoop), 6);
}

TEST(CallLine, IsUnknownWhereNoNameOrSeveralLinesHaveIt) {
    EXPECT_EQ(line_by("t.py(2): train", kLoop), 0);
    EXPECT_EQ(line_by("aten::item;t.py(2): train", kLoop), 0);  // float(loss), or a condition
    EXPECT_EQ(line_by("<built-in method item of Tensor object>;t.py(3): train", kLoop), 0);
    EXPECT_EQ(line_by("<built-in method item of Tensor object>;t.py(2): evaluate", kLoop), 0);
    // Further inwards stands a name that the function calls on one line, but not there.
    EXPECT_EQ(line_by("<built-in method item of Tensor object>;<built-in method to of Tensor object>;t.py(2): train", kLoop), 0);
    EXPECT_EQ(line_by("<built-in method item of Tensor object>;lib/site-packages/l.py(4): log;t.py(2): train", kLoop), 0);
    EXPECT_EQ(line_by("<built-in method item of Tensor object>;torch/nn/modules/l.py(4): forward;"
                      "torch/nn/modules/module.py(1532): _call_impl;nn.Module: Net_0;t.py(2): train",
                      kLoop),
              0);
    EXPECT_EQ(
        line_by("<built-in method item of Tensor object>;torch/utils/data/dataloader.py(9): __next__;t.py(2): train", kLoop), 0);
}

TEST(CallLine, DecoratorsHandACallOn) {
    EXPECT_EQ(
        line_by("torch/optim/sgd.py(60): step;torch/optim/optimizer.py(70): _use_grad;torch/optim/optimizer.py(480): wrapper;"
                "t.py(2): train",
                kLoop),
        5);
    EXPECT_EQ(line_by("t.py(30): report;torch/utils/_contextlib.py(113): decorate_context;t.py(2): train", kLoop), 6);
    EXPECT_EQ(line_by("t.py(30): report;t.py(20): wrapper;t.py(2): train", kLoop), 6);
    EXPECT_EQ(line_by("t.py(30): report;t.py(20): _private;t.py(2): train", kLoop), 0);
    EXPECT_EQ(line_by("t.py(30): report;t.py(20): wrapper;t.py(1): <module>", "wrapper()\nwrapper()\nreport()\n"), 0);
}

FindSources sources(std::vector<SourceFile> files) {
    return [files = std::move(files)](const std::string&) { return files; };
}

TEST(CallLines, EachStackHasItsOwn) {
    std::vector<Stack> stacks{{},
                              stack_of("<built-in method item of Tensor object>;t.py(2): train;t.py(1): <module>"),
                              stack_of("torch/_tensor.py(570): backward;t.py(2): train"),
                              stack_of("aten::mm;torch/nn/functional.py(3): f")};
    const std::vector<Stack> before = stacks;
    const CallLines lines = find_call_lines(stacks, sources({{std::string(kLoop), false}}));
    EXPECT_EQ(stacks[1][1].line, 6);
    EXPECT_EQ(stacks[1][2].line, 1);
    EXPECT_EQ(stacks[2][1].line, 4);
    EXPECT_EQ(stacks[2][0], before[2][0]);
    EXPECT_EQ(stacks[3], before[3]);
    EXPECT_TRUE(lines.found);
    EXPECT_TRUE(lines.kept);
    EXPECT_TRUE(lines.changed.empty());
    stacks = before;
    EXPECT_FALSE(find_call_lines(stacks, {}).found);
    EXPECT_EQ(stacks, before);
}

TEST(CallLines, ASourceThatContradictsTheTraceIsNotUsed) {
    const std::vector<Stack> before{{}, stack_of("<built-in method item of Tensor object>;t.py(1): <module>;t.py(3): train")};
    std::vector<Stack> stacks = before;
    const SourceFile other{"item()\ndef train():\n  exec()\n", false}, same{"\nitem()\ndef train():\n  exec()\n", false};
    EXPECT_FALSE(find_call_lines(stacks, sources({other})).found);
    EXPECT_EQ(stacks, before);
    EXPECT_TRUE(find_call_lines(stacks, sources({other, {"(", false}, same})).found);
    EXPECT_EQ(stacks[1][1].line, 2);
}

TEST(CallLines, ASourceThatLacksMostFunctionsIsAnotherFile) {
    std::vector<Stack> stacks{{},
                              stack_of("<built-in method item of Tensor object>;t.py(0): <module>"),
                              stack_of("aten::mm;t.py(4): train;t.py(0): <module>"),
                              stack_of("aten::mm;t.py(9): test;t.py(0): <module>")};
    const std::vector<Stack> before = stacks;
    EXPECT_FALSE(find_call_lines(stacks, sources({{"x.item()\n", false}})).found) << "it has none of them";
    EXPECT_FALSE(find_call_lines(stacks, sources({{"x.item()\n\n\ndef other():\n  pass\n", false}})).found);
    EXPECT_EQ(stacks, before);
    EXPECT_TRUE(find_call_lines(stacks, sources({{"x.item()\n\n\ndef train():\n  pass\n", false}})).found)
        << "one may be made by a decorator";
    EXPECT_EQ(stacks[1][1].line, 1);
}

TEST(CallLines, FramesHaveThePathOfTheSourceThatServed) {
    const std::vector<Stack> before{{}, stack_of("<built-in method item of Tensor object>;t.py(1): <module>;u.py(3): train")};
    std::vector<Stack> stacks = before;
    const SourceFile wrong{"(", false, "here/t.py"}, right{"\n\nitem()", false, "beside/t.py"};
    find_call_lines(stacks, [&](const std::string& name) -> std::vector<SourceFile> {
        if (name == "t.py") return {wrong, right};
        return {};
    });
    EXPECT_EQ(stacks[1][1].file, "beside/t.py");
    EXPECT_EQ(stacks[1][1].line, 3);
    EXPECT_EQ(stacks[1][2], before[1][2]);
}

TEST(CallLines, WhatWasWrittenAfterTheTraceWasMadeIsChangedHoweverOldTheTracesFileLooks) {
    std::vector<Stack> stacks{{}, stack_of("<built-in method item of Tensor object>;t.py(1): <module>")};
    const SourceFile file{"item()", false, "t.py", 1000};
    EXPECT_EQ(find_call_lines(stacks, sources({file}), 999).changed.size(), 1u);
    EXPECT_TRUE(find_call_lines(stacks, sources({file}), 1000).found);
}

TEST(CallLines, AChangedSourceIsNamedUnlessAnotherServes) {
    std::vector<Stack> stacks{{}, stack_of("<built-in method item of Tensor object>;t.py(1): <module>")};
    const CallLines lines = find_call_lines(stacks, sources({{"item()", true}}));
    EXPECT_FALSE(lines.found);
    EXPECT_EQ(lines.changed, std::vector<std::string>{"t.py"});
    EXPECT_TRUE(find_call_lines(stacks, sources({{"item()", true}, {"\n\nitem()", false}})).changed.empty());
    EXPECT_EQ(stacks[1][1].line, 3);
}

TEST(CallLines, OnlyPythonOfTheUserIsAskedForAndNotWithoutEnd) {
    std::vector<Stack> stacks{{}, stack_of("a.so(3): f;<string>(1): g;/x/site-packages/y.py(1): f;torch/_tensor.py(3): f")};
    for (int i = 0; i < 1009; ++i) stacks.push_back(stack_of(fmt::format("f{}.py(1): f", i)));
    std::vector<std::string> asked;
    find_call_lines(stacks, [&](const std::string& name) {
        asked.push_back(name);
        return std::vector<SourceFile>{};
    });
    EXPECT_EQ(asked.size(), 128u);
    EXPECT_TRUE(std::ranges::all_of(asked, [](const std::string& name) { return name.starts_with('f'); }));
}

/// A program that reads its loss in every step, and the trace of it.
class TracedProgram : public ::testing::Test {
protected:
    static constexpr std::string_view kOnce =
        "import torch\n\ntotal = 0.0\nfor step in range(30):\n    rows = choose(step)\n"
        "    total += train(rows).item()\n";

    static std::string trace() {
        std::string events;
        const auto add = [&](std::string_view category, std::string_view name, int begin, int duration,
                             std::string_view rest = "") {
            events += fmt::format(R"({}{{"ph":"X","cat":"{}","name":"{}","pid":9,"tid":9,"ts":{},"dur":{}{}}})",
                                  events.empty() ? "" : ",", category, name, begin, duration, rest);
        };
        constexpr int kSteps = 30, kStep = 20'000;
        add("python_function", "program.py(0): <module>", 0, kSteps * kStep);
        for (int step = 0; step < kSteps; ++step) {
            const int at = step * kStep;
            const std::string correlation = fmt::format(R"(,"args":{{"correlation":{}}})", 2 * step + 1);
            add("user_annotation", fmt::format("ProfilerStep#{}", step), at, kStep);
            add("python_function", "<built-in method train of Model object at 0x7e>", at + 7990, 30);
            add("cuda_runtime", "cudaLaunchKernel", at + 8000, 10, correlation);
            add("kernel", "gemm", at + 8020, 10'000,
                fmt::format(R"(,"args":{{"device":0,"stream":7,"correlation":{}}})", 2 * step + 1));
            add("python_function", fmt::format("<built-in method item of Tensor object at 0x7f{:04}>", step), at + 8030, 10'050);
            add("cpu_op", "aten::item", at + 8032, 10'040);
            add("cuda_runtime", "cudaStreamSynchronize", at + 8040, 10'000,
                fmt::format(R"(,"args":{{"correlation":{}}})", 2 * step + 2));
        }
        return fmt::format(R"({{"schemaVersion":1,"traceEvents":[{}]}})", events);
    }

    /// The line of the finding; 0 for one without, -1 for none. `age` is that of the source when the trace was made.
    int found_line(std::string_view source, std::chrono::seconds age) {
        EXPECT_TRUE(io::write_atomically(folder_ / "trace.json", trace()).ok());
        EXPECT_TRUE(io::write_atomically(folder_ / "program.py", source).ok());
        std::filesystem::last_write_time(folder_ / "program.py", std::filesystem::last_write_time(folder_ / "trace.json") - age);
        auto timeline = read_kineto(folder_ / "trace.json");
        EXPECT_TRUE(timeline.ok());
        if (!timeline.ok()) return -1;
        remarks_ = fmt::format("{}", fmt::join(timeline->remarks, "\n"));
        for (const Finding& finding : diagnose(*timeline).findings)
            if (finding.kind == Kind::kHostSync && finding.where) return finding.where->line;
        return -1;
    }
    bool says(std::string_view part) const { return remarks_.find(part) != std::string::npos; }

    test::TemporaryFolder folder_;
    std::string remarks_;
};

TEST_F(TracedProgram, ItsFindingHasTheLineOfTheSource) {
    EXPECT_EQ(found_line(kOnce, std::chrono::seconds(3)), 6);
    EXPECT_TRUE(says("found by name in the source")) << remarks_;
    EXPECT_FALSE(says("where functions begin")) << remarks_;
    EXPECT_EQ(found_line(kOnce, std::chrono::seconds(0)), 6);
}

TEST_F(TracedProgram, ThatWasChangedSinceHasNoLines) {
    EXPECT_EQ(found_line(kOnce, std::chrono::seconds(-3)), 0);
    EXPECT_TRUE(says("program.py was changed after the trace was made")) << remarks_;
    EXPECT_TRUE(says("lines are those where functions begin")) << remarks_;
    EXPECT_FALSE(says("found by name")) << remarks_;
}

TEST_F(TracedProgram, WithTwoSuchCallsHasNoLine) {
    EXPECT_EQ(found_line(std::string(kOnce) + "print(loss.item())\n", std::chrono::seconds(3)), 0);
    EXPECT_TRUE(says("some lines were found by name in the source, others are those where functions begin")) << remarks_;
    EXPECT_EQ(found_line("", std::chrono::seconds(3)), 0);
    EXPECT_EQ(found_line("item(", std::chrono::seconds(3)), 0);
}

TEST_F(TracedProgram, FromMemoryOpensNoFile) {
    EXPECT_EQ(found_line(kOnce, std::chrono::seconds(3)), 6);
    const std::string text = trace();
    test::TextSource source(text, 1000);
    const auto timeline = read_kineto(source, folder_ / "trace.json");
    ASSERT_TRUE(timeline.ok());
    for (const Stack& stack : timeline->stacks)
        for (const Frame& frame : stack) EXPECT_EQ(frame.line, 0) << frame.function;
}

}  // namespace
}  // namespace millrace::diagnose
