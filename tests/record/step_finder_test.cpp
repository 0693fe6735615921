#include "record/step_finder.h"

#include <gtest/gtest.h>

#include <algorithm>

namespace millrace::record {
namespace {

constexpr const char* kTrain = "/home/u/train.py";
constexpr const char* kAdam = "/usr/lib/python3/dist-packages/torch/optim/adamw.py";
constexpr const char* kModule = "/usr/lib/python3/dist-packages/torch/nn/modules/module.py";

/// A program that launches under stacks; frames as they are called, outermost first.
struct Program {
    StepInput input{{}, {{}}, {}};
    LoopTable loops;
    std::vector<std::vector<StackFrame>> known;
    std::uint64_t now = 0;

    Program() {
        for (const char* function : {"<module>", "main", "evaluate", "forward", "step", "_call_impl"})
            for (const char* file : {kTrain, kAdam, kModule, "/venv/lightning/loops/fit.py"}) loops.add({file, function, {}});
    }
    std::uint32_t place(std::vector<StackFrame> outermost_first) {
        for (std::size_t i = 0; i < known.size(); ++i)
            if (std::ranges::equal(known[i], outermost_first, [](const StackFrame& a, const StackFrame& b) {
                    return a.file == b.file && a.function == b.function && a.line == b.line;
                }))
                return static_cast<std::uint32_t>(i + 1);
        const std::vector<StackFrame> frames(outermost_first.rbegin(), outermost_first.rend());
        input.places.push_back(place_of(frames, loops).value_or(StepPlace{}));
        known.push_back(std::move(outermost_first));
        return static_cast<std::uint32_t>(known.size());
    }
    void launch(std::uint64_t kernel, std::vector<StackFrame> stack, int times = 1) {
        const std::uint32_t where = stack.empty() ? 0 : place(std::move(stack));
        for (int i = 0; i < times; ++i) input.acts.push_back({++now, kernel, kernel, where, false, false});
    }
    /// On autograd's thread.
    void backward(std::uint64_t kernel, int times) { launch(kernel, {}, times); }
    void update(std::uint32_t line, int kernels = 2) {
        for (int i = 0; i < kernels; ++i)
            launch(900 + static_cast<std::uint64_t>(i), at(line, {{kAdam, "step", 30 + static_cast<std::uint32_t>(i), false}}));
    }
    static std::vector<StackFrame> at(std::uint32_t line, std::vector<StackFrame> inner = {}) {
        std::vector<StackFrame> stack{{kTrain, "<module>", 99, false}, {kTrain, "main", line, false}};
        stack.insert(stack.end(), inner.begin(), inner.end());
        return stack;
    }
};

TEST(StepFinder, AnUnrolledCellIsNoStep) {
    Program program;
    program.loops.add({kTrain, "main", {{5, 60}, {10, 30}}});
    program.loops.add({kTrain, "forward", {{70, 74}}});
    for (int step = 0; step < 31; ++step) {
        program.launch(1, Program::at(11));
        for (int time = 0; time < 12 + step % 5; ++time)
            for (std::uint32_t line = 71; line < 75; ++line)
                program.launch(line, Program::at(13, {{kTrain, "forward", line, false}}));
        program.launch(2, Program::at(14));
        program.backward(3, 90);
        program.update(16);
        program.launch(4, Program::at(20));  // it is logged
    }
    const FoundSteps found = find_steps(program.input);
    EXPECT_EQ(found.source, StepSource::kUpdates);
    EXPECT_EQ(found.ends.size(), 30u);
}

TEST(StepFinder, TurnsOfTheLoopThatTrainsCountWithoutAnOptimizer) {
    // word_language_model: parameters are changed in a loop of the program's own, the network is one call.
    Program program;
    program.loops.add({kTrain, "main", {{5, 60}, {10, 30}, {17, 18}}});
    program.loops.add({kTrain, "evaluate", {{80, 85}}});
    for (int step = 0; step < 40; ++step) {
        program.launch(1, Program::at(11));
        for (int time = 0; time < 35; ++time) program.launch(7, Program::at(13, {{kTrain, "forward", 72, false}}), 2);
        program.launch(8, Program::at(13, {{kTrain, "forward", 73, false}}));
        program.launch(2, Program::at(14));
        program.backward(3, 150);
        program.launch(5, Program::at(15));
        for (int parameter = 0; parameter < 11; ++parameter) program.launch(6, Program::at(18));
        if (step == 19)
            for (int batch = 0; batch < 24; ++batch) program.launch(7, Program::at(40, {{kTrain, "evaluate", 82, false}}), 70);
    }
    const FoundSteps found = find_steps(program.input);
    EXPECT_EQ(found.source, StepSource::kLoop);
    ASSERT_EQ(found.ends.size(), 39u);
    for (std::size_t i = 0; i < found.ends.size(); ++i)
        EXPECT_EQ(found.ends[i] - found.starts[i], 1u + 70 + 1 + 1 + 150 + 1 + 11) << i << ": the evaluation is none of a step";
}

TEST(StepFinder, AccumulatedGradientsAreOneStep) {
    Program program;
    program.loops.add({kTrain, "main", {{10, 30}}});
    for (int batch = 0; batch < 64; ++batch) {
        program.launch(1, Program::at(11), 5);
        program.backward(3, 10);
        if (batch % 4 == 3) program.update(16);
    }
    const FoundSteps found = find_steps(program.input);
    EXPECT_EQ(found.source, StepSource::kUpdates);
    EXPECT_EQ(found.ends.size(), 14u);
    EXPECT_EQ(found.length, 62u);
}

TEST(StepFinder, AnOptimizerMayRunWithoutGradients) {
    constexpr const char* kWrapper = "/usr/lib/python3/dist-packages/torch/optim/optimizer.py";
    constexpr const char* kGradMode = "/usr/lib/python3/dist-packages/torch/autograd/grad_mode.py";
    Program program;
    program.loops.add({kTrain, "main", {{10, 30}}});
    for (int batch = 0; batch < 64; ++batch) {
        program.launch(1, Program::at(11), 5);
        program.backward(3, 10);
        if (batch % 4 == 3)
            program.launch(900, Program::at(16, {{kWrapper, "wrapper", 140, false},
                                                 {kGradMode, "decorate_context", 27, false},
                                                 {kAdam, "step", 30, false}}));
    }
    const FoundSteps found = find_steps(program.input);
    EXPECT_EQ(found.source, StepSource::kUpdates);
    EXPECT_EQ(found.ends.size(), 14u);
}

TEST(StepFinder, ALoopInsideTheOptimizerAndOneOverSeveralAreNoSteps) {
    Program program;
    program.loops.add({kTrain, "main", {{10, 30}, {16, 17}}});
    program.loops.add({kAdam, "step", {{20, 50}}});  // foreach=False
    for (int batch = 0; batch < 20; ++batch) {
        program.launch(1, Program::at(11), 5);
        program.backward(3, 10);
        for (int optimizer = 0; optimizer < 3; ++optimizer)
            for (int parameter = 0; parameter < 8; ++parameter) program.update(17, 4);
    }
    const FoundSteps found = find_steps(program.input);
    EXPECT_EQ(found.source, StepSource::kUpdates);
    EXPECT_EQ(found.ends.size(), 18u);
}

TEST(StepFinder, ALibrarysLoopIsTheStepThoughTheOptimizerCallsTheProgramBack) {
    // Whatever the environment is called.
    for (const std::string packages : {"/venv/", "/opt/torch/.venv/lib/python3.12/site-packages/"}) {
        Program program;
        const std::string fit = packages + "lightning/loops/fit.py", closure = packages + "lightning/closure.py";
        program.loops.add({fit, "advance", {{100, 140}}});
        const auto under = [&](std::vector<StackFrame> inner) {
            std::vector<StackFrame> stack{
                {kTrain, "<module>", 99, false}, {fit, "advance", 120, false}, {kAdam, "step", 28, false}};
            stack.insert(stack.end(), inner.begin(), inner.end());
            return stack;
        };
        for (int batch = 0; batch < 20; ++batch) {
            program.launch(1, under({{closure, "closure", 5, false}, {kTrain, "training_step", 40, false}}), 6);
            program.launch(2, under({{closure, "closure", 6, false}}));
            program.backward(3, 10);
            program.launch(900, under({}));
        }
        const FoundSteps found = find_steps(program.input);
        EXPECT_EQ(found.source, StepSource::kUpdates);
        EXPECT_EQ(found.ends.size(), 18u);
        EXPECT_EQ(found.length, 18u);
    }
}

TEST(StepFinder, OneGraphIsAStepAndRareLinesAreNone) {
    Program program;
    program.loops.add({kTrain, "main", {{10, 30}}});
    for (int step = 0; step < 200; ++step) {
        program.launch(77, Program::at(12));
        program.input.acts.back().graph = true;
        if (step % 50 == 49) program.launch(5, Program::at(14));  // it is logged
    }
    const FoundSteps found = find_steps(program.input);
    EXPECT_EQ(found.length, 1u);
    EXPECT_GE(found.ends.size(), 196u);
}

TEST(StepFinder, StepsAreTheGraphsThatAreReplayedBehindUpdates) {
    Program program;
    program.loops.add({kTrain, "main", {{5, 9}, {10, 30}}});
    for (int step = 0; step < 30; ++step) {
        for (std::uint32_t line = 6; line < 8; ++line) program.launch(line, Program::at(line), 4);
        program.backward(3, 12);
        program.update(8);
    }
    for (int step = 0; step < 61; ++step) {
        program.launch(50, Program::at(12));
        program.input.acts.back().graph = true;
    }
    const FoundSteps found = find_steps(program.input);
    EXPECT_NE(found.source, StepSource::kUpdates);
    EXPECT_EQ(found.length, 1u);
    EXPECT_GE(found.ends.size(), 58u);
}

TEST(StepFinder, ACompiledStepWithoutAnOptimizerIsOneHoweverRarelyItsLossIsRead) {
    Program program;  // JAX: all kernels of a step come from one call
    program.loops.add({kTrain, "main", {{10, 30}}});
    for (int step = 0; step < 100; ++step) {
        for (std::uint64_t kernel = 1; kernel <= 13; ++kernel)
            program.launch(kernel % 5 + 1, Program::at(12, {{"/venv/site-packages/jax/_src/pjit.py", "cache_miss", 300, false}}));
        if (step % 20 == 19) program.input.acts.push_back({++program.now, 0, 0, program.place(Program::at(14)), false});
    }
    const FoundSteps found = find_steps(program.input);
    EXPECT_EQ(found.source, StepSource::kLoop);
    EXPECT_EQ(found.length, 13u);
    EXPECT_EQ(found.ends.size(), 99u);
}

TEST(StepFinder, OneCallThatLaunchesTheSameOftenIsOneTurn) {
    Program program;  // a library's loop in C, and a read
    program.loops.add({kTrain, "main", {{10, 30}}});
    for (int step = 0; step < 30; ++step) {
        program.launch(1, Program::at(12), 400);
        program.launch(2, Program::at(13));
        if (step >= 10) program.input.acts.back().place = 0;
        for (int i = 0; step >= 10 && i < 400; ++i) (program.input.acts.end() - 2 - i)->place = 0;
    }
    const FoundSteps found = find_steps(program.input);
    EXPECT_EQ(found.source, StepSource::kLoop);
    EXPECT_EQ(found.length, 401u);
    EXPECT_EQ(found.ends.size(), 29u) << "also of those without places";
}

TEST(StepFinder, LaunchesWithoutPlacesGoOnAsThoseThatHaveThem) {
    Program program;
    program.loops.add({kTrain, "main", {{10, 30}}});
    for (int step = 0; step < 40; ++step) {
        const std::size_t before = program.input.acts.size();
        program.launch(1, Program::at(11), 5);
        program.backward(3, 10);
        program.update(16, 3);
        for (std::size_t act = before; step >= 10 && act < program.input.acts.size(); ++act) program.input.acts[act].place = 0;
    }
    const FoundSteps found = find_steps(program.input);
    EXPECT_EQ(found.source, StepSource::kUpdates);
    EXPECT_EQ(found.ends.size(), 38u);
}

TEST(StepFinder, WhatTheProgramMarksComesFirst) {
    Program program;
    program.loops.add({kTrain, "main", {{10, 30}}});
    std::vector<std::uint64_t> begins;
    for (int batch = 0; batch < 30; ++batch) {
        if (batch % 2 == 0) begins.push_back(program.now + 1);
        program.launch(1, Program::at(11), 5);
        program.update(16);
    }
    begins.push_back(program.now + 1);
    for (std::size_t i = 0; i + 1 < begins.size(); ++i)
        program.input.ranges.push_back({begins[i], begins[i + 1], "ProfilerStep#7"});
    const FoundSteps found = find_steps(program.input);
    EXPECT_EQ(found.source, StepSource::kRanges);
    EXPECT_EQ(found.ends.size(), 14u);
    EXPECT_EQ(found.length, 14u);
}

}  // namespace
}  // namespace millrace::record
