#include <algorithm>
#include <set>
#include <unordered_map>
#include <vector>

#include "diagnose/overview/overview.h"
#include "diagnose/replay/study.h"

namespace millrace::diagnose {
namespace {

/// Lines of a model, or of what runs a compiled one.
bool is_model(const Frame& frame) {
    const auto framework = framework_in(frame.file);
    return is_users(frame) || frame.file.find("/nn/") != std::string::npos || framework == Framework::kJax ||
           framework == Framework::kTensorFlow;
}

class Activities {
public:
    explicit Activities(const Study& study) : stacks_(study.timeline.stacks), trained_(lines_of_training(study)) {
        for (const Line& line : trained_) functions_.emplace(std::get<0>(line), std::get<1>(line));
    }

    /// All stacks are shown to it before any is asked for: one of an evaluation's line may not have come to the model yet.
    void show(std::uint32_t number) {
        const auto [entry, fresh] = seen_.try_emplace(number);
        if (!fresh) return;
        const Stack& stack = stacks_[number];
        // What is imported is not yet at work, unless a compiler imports it.
        for (auto frame = stack.rbegin(); frame != stack.rend() && !frame->file.starts_with("<frozen importlib"); ++frame) {
            if (is_compiler(*frame)) return entry->second.settle(Activity::kCompiling);
            if (is_checkpoint(*frame)) return entry->second.settle(Activity::kCheckpoints);
        }
        const auto trains = [&](const Frame& frame) { return trained_.contains(line_of(frame)); };
        const auto leaves =
            std::find_if(stack.rbegin(), stack.rend(), [&](const Frame& frame) { return !frame.native && !trains(frame); });
        if (leaves == stack.rend()) {
            const bool python = std::ranges::any_of(stack, [](const Frame& frame) { return !frame.native; });
            return entry->second.settle(python ? Activity::kTraining : Activity::kOther);
        }
        entry->second.leaves = &*leaves;
        if (std::any_of(leaves, stack.rend(), [&](const Frame& frame) { return trains(frame) && is_model(frame); }))
            evaluations_.insert(line_of(*leaves));
    }

    Activity of(std::uint32_t number) const {
        const Seen& seen = seen_.at(number);
        if (seen.leaves == nullptr) return seen.activity;
        if (evaluations_.contains(line_of(*seen.leaves))) return Activity::kEvaluation;
        // What a training line calls, or the same function does now and then.
        const bool within = !is_users(*seen.leaves) || functions_.contains(function_of(*seen.leaves));
        return within ? Activity::kTraining : Activity::kOther;
    }
    bool is_training(std::uint32_t number) const {
        const Seen& seen = seen_.at(number);
        return seen.leaves == nullptr && seen.activity == Activity::kTraining;
    }

private:
    struct Seen {
        Activity activity = Activity::kOther;
        const Frame* leaves = nullptr;  ///< the outermost frame that no training step runs through
        void settle(Activity what) { activity = what; }
    };

    const std::vector<Stack>& stacks_;
    std::set<Line> trained_, evaluations_;
    std::set<Function> functions_;
    std::unordered_map<std::uint32_t, Seen> seen_;
};

}  // namespace

RunLedger ledger_of(const Study& study) {
    const Timeline& timeline = study.timeline;
    RunLedger ledger;
    if (timeline.run.end <= timeline.run.begin) return ledger;
    const auto seconds = [](Time begin, Time end) { return static_cast<double>(end - begin) * 1e-9; };
    ledger.wall_s = seconds(timeline.run.begin, timeline.run.end);
    std::vector<Sample> samples;
    Activities activities(study);
    for (const Sample& sample : timeline.samples) {
        if (!study.is_main(sample) || sample.stack == kNoStack) continue;  // what could not be read goes on as before
        if (sample.time < timeline.run.begin || sample.time >= timeline.run.end) continue;
        samples.push_back(sample);
        activities.show(sample.stack);
    }
    const auto trains = [&](const Sample& sample) { return activities.is_training(sample.stack); };
    const auto first = std::ranges::find_if(samples, trains);
    if (first == samples.end()) return ledger;
    const auto last = std::find_if(samples.rbegin(), samples.rend(), trains).base();
    auto& sums = ledger.seconds.emplace();
    const auto add = [&](Activity what, Time begin, Time end) { sums[static_cast<std::size_t>(what)] += seconds(begin, end); };
    add(Activity::kStartUp, timeline.run.begin, samples.front().time);
    for (auto sample = samples.begin(); sample != samples.end(); ++sample) {
        if (sample + 1 == samples.end()) {
            add(Activity::kOther, sample->time, timeline.run.end);
            break;
        }
        Activity what = activities.of(sample->stack);
        const bool named = what == Activity::kCompiling || what == Activity::kCheckpoints;
        if (sample < first && !named) what = Activity::kStartUp;
        if (sample >= last && what == Activity::kTraining) what = Activity::kOther;
        add(what, sample->time, (sample + 1)->time);
    }
    return ledger;
}

}  // namespace millrace::diagnose
