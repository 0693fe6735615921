#pragma once
// Programs drawn at random, with none to three causes of lost time each. Every cause can be left out, so its truth is measured:
// the step with it less the step without.

#include <cmath>
#include <random>

#include "diagnose/simulated_cases.h"

namespace millrace::diagnose {

/// A cause in a random program and the lines at which it may be named.
struct RandomCause {
    Kind kind;
    std::vector<int> lines;
};

class RandomProgram {
public:
    explicit RandomProgram(std::uint64_t seed) : random_(seed * 7919 + 17) {
        traits_.seed = seed + 1;
        traits_.launch_us = between(3, 12);
        traits_.operator_us = between(4, 30);
        traits_.jitter = between(0.01, 0.1);
        traits_.queue = chance(0.2) ? 200 : 1024;
        steps_ = static_cast<int>(between(45, 150));
        net_ = {static_cast<int>(between(2, 20)), scale(20, 900)};
        if (chance(0.5)) host_us_ = scale(200, 6'000);
        upload_bytes_ = chance(0.5) ? scale(1e4, 2e7) : 0;
        log_every_ = chance(0.3) ? static_cast<int>(between(5, 30)) : 0;
        const int count = static_cast<int>(between(0, 2.99));
        for (int i = 0; i < count; ++i) draw_cause();
        // What most programs have, ill or not.
        causes_.push_back({Kind::kHostSync, {50}});
        causes_.push_back({Kind::kPythonWork, {12}});
        causes_.push_back({Kind::kLaunchBound, {19, 20, 21, 22}});
    }

    const std::vector<RandomCause>& causes() const { return causes_; }
    unsigned launching() const { return 1u << (causes_.size() - 1); }

    /// Bit i of `cured` leaves out cause i.
    Simulation simulate_without(unsigned cured) const {
        SimulatedProgram::Traits traits = traits_;
        if (cured & launching()) traits.launch_us = traits.operator_us = 0.01, traits.queue = 1u << 20;
        return simulate([&](SimulatedProgram& p, int step, bool) { body(p, step, cured); }, false, steps_, traits);
    }

    std::string described() const {
        std::string text =
            fmt::format("{} layers of {:.0f} us, launch {:.1f} + {:.1f} us, host {:.0f} us, {} steps:", net_.layers,
                        net_.kernel_us, traits_.launch_us, traits_.operator_us, host_us_, steps_);
        for (const Drawn& drawn : drawn_) text += fmt::format(" {}({:.0f}, {})", drawn.what, drawn.amount, drawn.count);
        return text;
    }

private:
    struct Drawn {
        std::string what;
        double amount = 0;
        int count = 1;
    };

    double between(double low, double high) { return std::uniform_real_distribution<>(low, high)(random_); }
    double scale(double low, double high) { return std::exp(between(std::log(low), std::log(high))); }
    bool chance(double share) { return between(0, 1) < share; }

    void add(const std::string& what, double amount, int count, Kind kind, std::vector<int> lines) {
        for (const Drawn& drawn : drawn_)
            if (drawn.what == what) return;
        drawn_.push_back({what, amount, count});
        causes_.push_back({kind, std::move(lines)});
    }

    void draw_cause() {
        switch (static_cast<int>(between(0, 8.999))) {
            case 0: return add("read", 0, 1, Kind::kHostSync, {31});
            case 1: return add("two reads", 0, 2, Kind::kHostSync, {32, 33});
            case 2: return add("many reads", between(5, 60), static_cast<int>(between(3, 60)), Kind::kHostSync, {41});
            case 3: return add("pageable", scale(2e6, 2e8), 1, Kind::kPageableCopy, {35});
            case 4: return add("flush", 0, static_cast<int>(between(2, 25)), Kind::kAllocatorChurn, {37});
            case 5: return add("loader", scale(2'000, 80'000), 1, Kind::kLoaderWait, {38});
            case 6: return add("python", scale(1'000, 40'000), 1, Kind::kPythonWork, {14});
            case 7: return add("writing", scale(5'000, 150'000), static_cast<int>(between(3, 20)), Kind::kFileOutput, {44});
            default: return add("same upload", scale(1e6, 8e7), 1, Kind::kRepeatedWork, {46});
        }
    }

    void before(SimulatedProgram& p, int step, const Drawn& drawn, bool cured) const {
        if (drawn.what == "loader") p.next_batch(cured ? 10 : drawn.amount, 3, 38);
        if (drawn.what == "python") {
            p.at({user_line(14, "augment"), user_line(30)});
            if (!cured) p.work(drawn.amount);
        }
        if (drawn.what == "pageable") {
            p.at(35);
            p.upload(drawn.amount, cured, static_cast<std::uint64_t>(step) + 1);
            if (!cured) p.stream_sync();
        }
        if (drawn.what == "same upload" && !cured) {
            p.at(46);
            p.upload(drawn.amount, false, 77);
        }
        if (drawn.what == "flush" && !cured) {
            p.at(20);
            for (int i = 0; i < drawn.count; ++i) p.allocate();
        }
    }

    static void read(SimulatedProgram& p, int line, bool cured) {
        p.at(line);
        p.launch("mean", 5);
        if (!cured) p.item();
    }

    void after(SimulatedProgram& p, int step, const Drawn& drawn, bool cured) const {
        if (drawn.what == "read") read(p, 31, cured);
        if (drawn.what == "two reads") {
            read(p, 32, cured);
            read(p, 33, cured);
        }
        if (drawn.what == "many reads")
            for (int i = 0; i < drawn.count; ++i) {
                p.at(41);
                p.launch("norm_reduce", drawn.amount);
                if (!cured) p.item();
            }
        if (drawn.what == "flush") {
            p.at({torch_line("cuda/memory.py", "empty_cache"), user_line(37)});
            for (int i = 0; i < drawn.count && !cured; ++i) p.free_memory();
        }
        if (drawn.what == "writing" && step % drawn.count == drawn.count - 1 && !cured) {
            p.at({torch_line("serialization.py", "save"), user_line(44, "save")});
            p.item();
            p.work(drawn.amount, 'D', "write");
        }
    }

    void body(SimulatedProgram& p, int step, unsigned cured) const {
        const auto is_cured = [&](std::size_t cause) { return (cured >> cause & 1) != 0; };
        for (std::size_t i = 0; i < drawn_.size(); ++i) before(p, step, drawn_[i], is_cured(i));
        if (host_us_ > 0) {
            p.at({user_line(12, "choose_rows"), user_line(29)});
            if (!is_cured(drawn_.size() + 1)) p.work(host_us_);
        }
        if (upload_bytes_ > 0) {
            p.at(19);
            p.upload(upload_bytes_, true, static_cast<std::uint64_t>(step) + 1'000);
        }
        train(p, net_);
        if (log_every_ > 0 && step % log_every_ == log_every_ - 1) read(p, 50, is_cured(drawn_.size()));
        for (std::size_t i = 0; i < drawn_.size(); ++i) after(p, step, drawn_[i], is_cured(i));
    }

    std::mt19937_64 random_;
    SimulatedProgram::Traits traits_;
    int steps_ = 60;
    Network net_;
    double host_us_ = 0, upload_bytes_ = 0;
    int log_every_ = 0;
    std::vector<Drawn> drawn_;
    std::vector<RandomCause> causes_;  ///< of drawn_, then a read for the log, host work, launching
};

}  // namespace millrace::diagnose
