#pragma once
// A program whose CUPTI may leave: a stand-in for a framework, driven by Python.

#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <string>
#include <thread>
#include <vector>

#include "python_program.h"

namespace millrace::probe {

class DetachableProgram : public PythonProgram {
protected:
    static ProbedProgram::Environment framework() {
        return {{"MOCK_FRAMEWORK", (build_folder() / "libmock_framework.so").string()},
                {"MOCK_CUPTI_LATE_MS", "300"},
                {"MOCK_PROFILER", (build_folder() / "libmock_profiler.so").string()}};
    }

    static bool order(ProbedProgram& program, record::ProbeMode mode, bool led, bool detach, std::uint32_t full_calls = 0) {
        program.header().control.pulse_led.store(led ? 1 : 0);
        program.header().control.detach.store(detach ? 1 : 0);
        return program.command(mode, record::CallKind::kSetAsync, full_calls, 3);
    }

    static record::CuptiPresence presence(ProbedProgram& program) {
        return static_cast<record::CuptiPresence>(program.header().state.presence.load());
    }

    /// A window of three steps, then steps until CUPTI is gone.
    static void leave(ProbedProgram& program) {
        ASSERT_TRUE(order(program, record::ProbeMode::kFull, false, false));
        ASSERT_EQ(program.ask("framework 3 4"), "0");
        ASSERT_TRUE(order(program, record::ProbeMode::kPulse, true, true));
        for (int tries = 0; tries < 1500 && program.ask("finalised") != "1"; ++tries) {
            ASSERT_EQ(program.ask("framework 1 4"), "0");
            std::this_thread::sleep_for(std::chrono::milliseconds(20));
            program.drain();
        }
        ASSERT_EQ(program.ask("finalised"), "1");
    }

    /// Threads of the program make calls until CUPTI is gone; false where it stays, as no moment came on a busy machine.
    static bool goes(ProbedProgram& program) {
        EXPECT_TRUE(order(program, record::ProbeMode::kPulse, true, true));
        for (int tries = 0; tries < 3000 && presence(program) == record::CuptiPresence::kThere; ++tries) {
            std::this_thread::sleep_for(std::chrono::milliseconds(5));
            program.beat();
            program.drain();
        }
        EXPECT_NE(presence(program), record::CuptiPresence::kThere);
        EXPECT_EQ(program.ask("finalised"), presence(program) == record::CuptiPresence::kGone ? "1" : "0");
        return presence(program) == record::CuptiPresence::kGone;
    }

    /// Steps until CUPTI is gone or stays, 12 seconds at most.
    static void take_steps_until_decided(ProbedProgram& program) {
        for (int tries = 0; tries < 600 && presence(program) == record::CuptiPresence::kThere; ++tries) {
            ASSERT_EQ(program.ask("framework 1 4"), "0");
            std::this_thread::sleep_for(std::chrono::milliseconds(20));
            program.beat();
            program.drain();
        }
    }

    /// A window of three steps, then none: CUPTI may go, and nobody has launched since.
    static void ask_to_leave(ProbedProgram& program) {
        ASSERT_TRUE(order(program, record::ProbeMode::kFull, false, false));
        ASSERT_EQ(program.ask("framework 3 4"), "0");
        ASSERT_TRUE(order(program, record::ProbeMode::kPulse, true, true));
        for (int tries = 0; tries < 75; ++tries) {  // three flushes, 200 ms each
            std::this_thread::sleep_for(std::chrono::milliseconds(20));
            program.beat();
            program.drain();
        }
    }

    /// CUPTI is still there, and nothing is missing.
    static void expect_further_window(ProbedProgram& program) {
        ASSERT_TRUE(order(program, record::ProbeMode::kFull, true, false));
        EXPECT_EQ(program.header().state.fault.load(), 0u);
        program.drain();
        program.entries.clear();
        ASSERT_EQ(program.ask("framework 3 4"), "0");
        ASSERT_TRUE(program.command(record::ProbeMode::kOff));
        program.drain();
        EXPECT_EQ(program.calls(record::CallKind::kLaunch).size(), 15u);
    }

    static void start(ProbedProgram& program) {
        ASSERT_EQ(program.hear(), "ready");
        ASSERT_TRUE(program.attach());
        program.header().control.leads.store(1);
    }

    static std::size_t led(const std::vector<Entry>& calls) {
        return static_cast<std::size_t>(
            std::ranges::count_if(calls, [](const Entry& call) { return (call.record.flags & record::kLedCall) != 0; }));
    }
};

}  // namespace millrace::probe
