#include "diagnose/overview/overview.h"

#include <algorithm>
#include <functional>
#include <map>
#include <set>
#include <unordered_map>
#include <utility>

#include "diagnose/reading/gpu_models.h"
#include "diagnose/reading/name_table.h"
#include "diagnose/replay/study.h"

namespace millrace::diagnose {
namespace {

/// Where a piece of work was launched.
struct Origin {
    std::uint32_t place = kNoPlace;
    std::uint32_t stretch = 0;  ///< numbers the launches between two waits of the host, in one step; 0: not known
};

/// By position in Timeline::work. Only launches whose stack was taken count, all of them where no stack was.
std::vector<Origin> origins_of(const Study& study) {
    std::vector<Origin> origins(study.timeline.work.size());
    std::uint32_t stretch = 0;
    for (std::size_t lane = 0; lane < study.lanes.size(); ++lane) {
        const Lane& line = study.lanes[lane];
        std::vector<char> begins(line.calls.size(), 0);  // a step
        for (const Step& step : study.steps[lane].steps)
            if (const std::uint32_t call = line.jobs[step.first_job].call; call != kNoIndex) begins[call] = 1;
        std::vector<std::uint32_t> stretch_of(line.calls.size());
        ++stretch;
        for (std::uint32_t act = 0; act < line.calls.size(); ++act) {
            if (begins[act] != 0 || study.models[lane].acts[act].waits > 0) ++stretch;
            stretch_of[act] = stretch;
        }
        for (const Job& job : line.jobs) {
            if (job.call == kNoIndex) continue;
            if (study.timeline.has_call_stacks && study.call(lane, job.call).stack == kNoStack) continue;
            const Origin origin{study.host.place_of(lane, job.call), stretch_of[job.call]};
            origins[job.first_work] = origin;
            for (const std::uint32_t more : job.more_work) origins[more] = origin;
        }
    }
    return origins;
}

struct RowSum {
    std::uint64_t calls = 0;
    double ms = 0, sized_ms = 0;  ///< sized: of those whose waves are known. Nanoseconds of a made-up trace could overflow
    double waves = 0;             ///< times milliseconds
    std::map<std::uint32_t, double> places;
};

/// An open run of element-wise kernels of one stream.
struct Run {
    std::uint32_t function = 0, stretch = 0, place = kNoPlace;
    std::vector<std::uint32_t> names;
    double ms = 0;
};

class Chains {
public:
    explicit Chains(const Study& study) : study_(study) {
        for (const std::string& name : study.timeline.names) fusible_.push_back(is_elementwise(name) ? 1 : 0);
    }

    void add(const Work& work, const Origin& origin) {
        Run& run = open_[work.stream];
        const bool joins = work.kind == WorkKind::kKernel && fusible_[work.name] != 0 && origin.stretch != 0;
        const std::uint32_t function = origin.place == kNoPlace ? 0 : study_.places.function(origin.place);
        if (!joins || run.stretch != origin.stretch || run.function != function) close(run);
        if (!joins) return;
        if (run.names.empty()) run = {function, origin.stretch, origin.place, {}, 0};
        run.names.push_back(work.name);
        run.ms += ms_of(work.end - work.begin);
    }

    /// `scale`: of what is recorded to what was looked at.
    std::vector<KernelChain> take(double scale) {
        for (auto& [stream, run] : open_) close(run);
        std::vector<KernelChain> chains;
        for (const auto& [key, seen] : seen_) {
            KernelChain& chain = chains.emplace_back();
            if (seen.place != kNoPlace) chain.where = study_.places.frame(seen.place);
            for (const std::uint32_t name : key.second) chain.names.push_back(demangled(study_.timeline.names[name]));
            chain.times = seen.times;
            chain.ms = seen.ms * scale;
        }
        std::ranges::stable_sort(chains, std::greater{}, &KernelChain::ms);
        return chains;
    }

private:
    struct Seen {
        std::uint32_t place = kNoPlace;
        std::uint64_t times = 0;
        double ms = 0;
    };

    void close(Run& run) {
        if (run.names.size() > 1) {
            Seen& seen = seen_[{run.function, run.names}];
            if (seen.times++ == 0) seen.place = run.place;
            seen.ms += run.ms;
        }
        run = {};
    }

    const Study& study_;
    std::vector<char> fusible_;  ///< by name
    std::map<std::uint32_t, Run> open_;
    std::map<std::pair<std::uint32_t, std::vector<std::uint32_t>>, Seen> seen_;
};

/// Lines of a model, or of what runs a compiled one.
bool is_model(const Frame& frame) {
    const auto framework = framework_in(frame.file);
    return is_users(frame) || frame.file.find("/nn/") != std::string::npos || framework == Framework::kJax ||
           framework == Framework::kTensorFlow;
}

class Activities {
public:
    /// All samples are looked at before any is asked for: one of an evaluation's line may not have come to the model yet.
    Activities(const Study& study, const std::vector<Sample>& samples) : trained_(lines_of_training(study)) {
        for (const Line& line : trained_) functions_.emplace(std::get<0>(line), std::get<1>(line));
        for (const Sample& sample : samples)
            if (const auto [seen, fresh] = seen_.try_emplace(sample.stack); fresh)
                seen->second = look_at(study.timeline.stacks[sample.stack]);
    }

    Activity of(std::uint32_t number) const {
        const SeenStack& seen = seen_.at(number);
        if (seen.leaves == nullptr) return seen.activity;
        if (evaluations_.contains(line_of(*seen.leaves))) return Activity::kEvaluation;
        // What a training line calls, or the same function does now and then.
        const bool within = !is_users(*seen.leaves) || functions_.contains(function_of(*seen.leaves));
        return within ? Activity::kTraining : Activity::kOther;
    }
    bool is_training(std::uint32_t number) const {
        const SeenStack& seen = seen_.at(number);
        return seen.leaves == nullptr && seen.activity == Activity::kTraining;
    }

private:
    struct SeenStack {
        Activity activity = Activity::kOther;
        const Frame* leaves = nullptr;  ///< the outermost frame that no training step runs through
    };

    SeenStack look_at(const Stack& stack) {
        // What is imported is not yet at work, unless a compiler imports it.
        for (auto frame = stack.rbegin(); frame != stack.rend() && !frame->file.starts_with("<frozen importlib"); ++frame) {
            if (is_compiler(*frame)) return {Activity::kCompiling};
            if (is_checkpoint(*frame)) return {Activity::kCheckpoints};
        }
        const auto trains = [&](const Frame& frame) { return trained_.contains(line_of(frame)); };
        const auto leaves =
            std::find_if(stack.rbegin(), stack.rend(), [&](const Frame& frame) { return !frame.native && !trains(frame); });
        if (leaves == stack.rend())
            return {std::ranges::find(stack, false, &Frame::native) != stack.end() ? Activity::kTraining : Activity::kOther};
        if (std::any_of(leaves, stack.rend(), [&](const Frame& frame) { return trains(frame) && is_model(frame); }))
            evaluations_.insert(line_of(*leaves));
        return {Activity::kOther, &*leaves};
    }

    std::set<Line> trained_, evaluations_;
    std::set<Function> functions_;
    std::unordered_map<std::uint32_t, SeenStack> seen_;
};

}  // namespace

KernelTable table_of_kernels(const Study& study) {
    const Timeline& timeline = study.timeline;
    const std::vector<Origin> origins = origins_of(study);
    std::map<std::uint32_t, RowSum> sums;  // by name
    Chains chains(study);
    double kernels = 0, known = 0;
    KernelTable table;
    for (std::size_t i = 0; i < timeline.work.size(); ++i) {
        const Work& work = timeline.work[i];
        if (work.process != study.launcher.process || work.device != study.launcher.device) continue;
        const double ms = ms_of(work.end - work.begin);
        table.gpu_ms += ms;
        chains.add(work, origins[i]);
        if (work.kind != WorkKind::kKernel) continue;
        kernels += ms;
        RowSum& sum = sums[work.name];
        ++sum.calls;
        sum.ms += ms;
        if (origins[i].stretch != 0) known += ms;
        if (origins[i].place != kNoPlace) sum.places[origins[i].place] += ms;
        const auto waves = waves_of(record::unpacked(work.launch), timeline.multiprocessors);
        if (waves) sum.waves += *waves * ms, sum.sized_ms += ms;
    }
    for (const auto& [number, sum] : sums) {
        const std::string name = demangled(timeline.names[number]);
        table.rows.push_back({name, sum.calls, sum.ms, std::nullopt, data_type_of(name), tensor_use_of(name), std::nullopt});
        if (const auto place = key_with_most(sum.places); place != kNoPlace) table.rows.back().where = study.places.frame(place);
        if (sum.sized_ms > 0) table.rows.back().waves = sum.waves / sum.sized_ms;
    }
    std::ranges::stable_sort(table.rows, std::greater{}, &KernelRow::ms);
    table.chains = chains.take(known > 0 ? kernels / known : 0);
    return table;
}

RunLedger ledger_of(const Study& study) {
    const Timeline& timeline = study.timeline;
    RunLedger ledger;
    if (timeline.run.end <= timeline.run.begin) return ledger;
    const auto seconds = [](Time begin, Time end) { return static_cast<double>(end - begin) * 1e-9; };
    ledger.wall_s = seconds(timeline.run.begin, timeline.run.end);
    std::vector<Sample> samples;
    for (const Sample& sample : timeline.samples) {
        if (!study.is_main(sample) || sample.stack == kNoStack) continue;  // what could not be read goes on as before
        if (sample.time < timeline.run.begin || sample.time >= timeline.run.end) continue;
        samples.push_back(sample);
    }
    const Activities activities(study, samples);
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
