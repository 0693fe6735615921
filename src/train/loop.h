#pragma once
// The training loop: launches steps, keeps a bounded number of them in flight, keeps the time, and raises the events of
// train/listener.h. Everything else that a run does is a listener.

#include <atomic>
#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "base/clock.h"
#include "train/listener.h"
#include "train/metrics_thread.h"
#include "train/ranks.h"
#include "train/run_state.h"
#include "train/setup.h"

namespace millrace::train {

class Loop {
public:
    /// Everything is borrowed but `state`, which says where the run stands (a fresh one: step 0). `run` is its directory. The
    /// loop ends when `*stop` is not 0; `stop` may be null. All of `ranks` run it, stop at one step and save at one step.
    Loop(Setup& setup, const RunState& state, std::string run, const std::atomic<int>* stop, const base::Clock& clock,
         Ranks& ranks);

    /// Before run(). Borrowed; called after those that were added before.
    void add(Listener& listener) { listeners_.push_back(&listener); }
    /// Trains until all steps are done or a listener ends the run, or until a signal or a listener asks to stop.
    base::Result<RunResult> run();

    // For listeners, from the training thread, from on_start to on_stop.
    [[nodiscard]] const Setup& setup() const { return setup_; }
    [[nodiscard]] Engine& engine() { return *setup_.engine; }
    /// With several ranks, as they have agreed.
    [[nodiscard]] const std::atomic<int>* stop() const { return ranks_.several() ? &agreed_stop_ : stop_; }
    [[nodiscard]] Ranks& ranks() const { return ranks_; }
    [[nodiscard]] int members() const { return ranks_.members(); }  ///< of all ranks
    /// The steps of the epoch so far, of all members; the device is idle. Every rank calls it.
    base::Result<StepSums> epoch_sums() { return ranks_.all_sums(metrics_->epoch_sums()); }
    /// Of all members. `stop`: Engine::evaluate; where there are ranks one they have agreed on. Every rank calls it.
    base::Result<std::vector<Score>> evaluate(data::Part part, Engine& engine, const std::atomic<int>* stop = nullptr) {
        MILLRACE_LET(scores, engine.evaluate(part, stop));
        return ranks_.all_scores(std::move(scores));
    }
    /// A listener's wish for a checkpoint: asked on rank 0 where there are ranks, and then with the same answer everywhere.
    void on_save_wish(std::function<bool()> wish) { save_wish_ = std::move(wish); }
    [[nodiscard]] bool save_wished() {
        return ranks_.several() ? std::exchange(agreed_.saves, 0) != 0 : save_wish_ && save_wish_();
    }
    [[nodiscard]] std::uint64_t step() const { return step_; }  ///< launched, those before this start included
    [[nodiscard]] std::uint64_t steps_per_epoch() const { return steps_per_epoch_; }
    [[nodiscard]] bool complete() const { return step_ >= total_steps_ || !ended_.empty(); }
    /// The run is complete with the step that it is at: nothing is left to resume. `why` is a text for people. Also before
    /// run().
    void end(std::string why) { ended_ = std::move(why); }
    [[nodiscard]] MetricsThread& metrics() { return *metrics_; }
    /// Returns when all that was launched has run and the row of its interval was reported. Until resume() time counts in no
    /// speed.
    base::Status pause();
    void resume() { metrics_->resume(); }
    /// Between pause() and resume(): goes on with an engine of the same data and steps that stands where the run does. Gives the
    /// one before.
    std::unique_ptr<Engine> replace_engine(std::unique_ptr<Engine> engine);

private:
    enum class Timing { none, phases, kernels };
    [[nodiscard]] StartReport start_report();
    [[nodiscard]] MetricsPlan metrics_plan();
    [[nodiscard]] double flops_per_sample();  ///< 0: not known
    [[nodiscard]] bool stop_requested();
    /// What ranks ask of each other.
    struct Wishes {
        std::int64_t signal = 0, ends = 0, saves = 0;
        std::uint64_t next = 0;  ///< the step before which ranks meet again
    };
    base::Status meet();
    [[nodiscard]] std::uint32_t epoch_of(std::uint64_t step) const {
        return static_cast<std::uint32_t>((step - 1) / steps_per_epoch_) + 1;
    }
    [[nodiscard]] Timing timing_due() const;
    base::Status await_rows();
    /// Steps of the run that the device has finished.
    base::Result<std::uint64_t> finished_steps();
    base::Status launch();
    base::Status timed_step(Timing timing, std::uint64_t index);
    base::Status hold_back();
    base::Status settle();
    base::Status end_epoch(bool whole);
    void begin_epoch() {
        metrics_->begin_epoch();
        for (Listener* listener : listeners_) listener->on_epoch_begin();
    }

    Setup& setup_;
    const std::string run_;
    const std::atomic<int>* stop_;
    const base::Clock& clock_;
    Ranks& ranks_;
    Wishes agreed_;                     ///< of all ranks
    std::atomic<int> agreed_stop_ = 0;  ///< its signal
    std::chrono::nanoseconds met_at_{};
    std::uint64_t met_step_;
    std::function<bool()> save_wish_;
    const std::uint64_t steps_per_epoch_, total_steps_;
    std::uint64_t step_;
    const bool was_closed_;       ///< the epoch in which the run stands was already ended
    const StepSums first_sums_;   ///< of the epoch in which the run stands
    std::uint64_t launched_ = 0;  ///< steps since this start, equal to pushes into the ring
    std::uint64_t finished_ = 0;  ///< of them, as far as anybody asked
    const data::StepsDone steps_done_ = [this] { return finished_steps(); };
    std::uint64_t loader_bytes_ = 0;  ///< when the epoch began
    std::string ended_;               ///< why the run is complete before its last step; empty: it is not
    double epoch_seconds_ = 0, epoch_samples_ = 0;
    std::vector<Listener*> listeners_;
    MetricsReader reader_;
    MetricsThread* metrics_ = nullptr;  ///< of run()
};

}  // namespace millrace::train
