#include "base/processors.h"
#include "models/leak_cnn/leak_cnn.h"

#include <fmt/format.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cmath>
#include <filesystem>
#include <limits>
#include <span>
#include <thread>

#include "data/recordings/resident_recordings.h"
#include "data/sound/resample.h"
#include "data/sound/sound_set.h"
#include "models/leak_cnn/leak_cnn.h"
#include "models/leak_cnn/ops/sounds.h"
#include "models/weights.h"
#include "tape/record.h"

namespace millrace::models {
namespace {

namespace fs = std::filesystem;

constexpr std::size_t kBatch = 64;  // recordings at once: 5120 windows fill a GPU

/// Named after the class that is looked for.
std::vector<std::string> columns_of(const data::Classes& classes) {
    std::string name = classes.names[static_cast<std::size_t>(classes.positive)];
    for (char& letter : name)
        letter = std::isalnum(static_cast<unsigned char>(letter)) != 0 ? static_cast<char>(std::tolower(letter)) : '_';
    return {"filepath", "is_" + name, name + "_conf_mean", "long_pos_frac", "per_long_probs_json", "notes"};
}

/// One recording of a batch.
struct Heard {
    std::string error;  ///< empty: features were read
    data::Fit fit = data::Fit::exact;
};

/// kBatch recordings: their samples where the device makes features of them, else their features.
struct Batch {
    std::vector<float> samples;
    std::vector<std::uint16_t> features;
};

/// Reads recordings [first, first + heard.size()) of `files` on all processors.
void hear(const std::vector<fs::path>& files, std::size_t first, data::Resamplers& resamplers, bool repeat,
          std::vector<Heard>& heard, Batch& batch) {
    std::atomic<std::size_t> next{0};
    const auto work = [&] {
        std::vector<float> own(batch.samples.empty() ? data::kSoundSamples : 0);
        for (std::size_t i = next++; i < heard.size(); i = next++) {
            const std::span<float, data::kSoundSamples> samples(
                own.empty() ? batch.samples.data() + i * data::kSoundSamples : own.data(), data::kSoundSamples);
            const auto fit = data::read_recording(files[first + i], resamplers, samples, repeat);
            heard[i].error = fit.ok() ? "" : fit.error().message;
            if (!fit.ok()) continue;
            heard[i].fit = *fit;
            if (own.empty()) continue;
            data::mels_of_recording(samples, std::span<std::uint16_t, data::kRecordingMels>(
                                                 batch.features.data() + i * data::kRecordingMels, data::kRecordingMels));
        }
    };
    std::vector<std::jthread> others;
    for (int t = 1; t < base::usable_processors(); ++t) others.emplace_back(work);
    work();
}

/// A program over the windows of kBatch recordings.
struct Detector {
    std::unique_ptr<data::ResidentRecordings> source = {};
    std::unique_ptr<TrainedModel> trained = {};
    std::vector<tensor::View> kept = {};
    tensor::View samples = {};  ///< f32 [1, 1, windows, 512] where the program begins with them; else absent
    VotingRules rules = {};
};

/// Silence in place of recordings that are still to come.
std::shared_ptr<const data::RecordingSet> placeholders(const RecordingData& stored) {
    auto set = std::make_shared<data::RecordingSet>();
    set->classes = stored.classes;
    set->scaling = std::make_shared<const data::Scaling>(stored.scaling);
    set->windows = data::kLongs * data::kShorts;
    set->width = data::kMelBands;
    const auto fill = [&](data::Part part, std::size_t count) {
        set->parts[data::index_of(part)] = {static_cast<std::int32_t>(count),
                                            std::vector<std::uint16_t>(count * data::kRecordingMels),
                                            std::vector<std::int32_t>(count)};
    };
    fill(data::Part::train, 1);
    fill(data::Part::test, kBatch);
    return set;
}

base::Result<Detector> make_detector(const ClassifyRequest& request, const RecordingData& stored) {
    if (stored.scaling.mean.size() != data::kMelBands ||
        stored.classes.together != std::vector<std::int32_t>{data::kLongs, data::kShorts})
        return base::Error{fmt::format("the run was trained on other windows than {} x {} of {} bands, which sound files give",
                                       data::kLongs, data::kShorts, data::kMelBands)};
    Detector made;
    made.source = std::make_unique<data::ResidentRecordings>(placeholders(stored));
    MILLRACE_LET(config, leak_cnn_config(request.recipe, made.source->fields()));
    auto detecting = std::make_unique<LeakCnn>(std::move(config));
    LeakCnn& model = *detecting;
    constexpr auto windows = static_cast<std::int32_t>(kBatch * data::kLongs * data::kShorts);
    const auto declare = [&](tape::Store& store) {
        if (request.device == ops::DeviceKind::cuda)
            made.samples = store.add_data("samples", tensor::DType::f32, windows, data::kShortWindow);
        return made.source->declare(store);
    };
    const auto build = [&](tape::Builder& builder) {
        if (made.samples.present())
            builder.append(tape::record_of(&ops::mel_bands::kDef, ops::MelBandsParams{}, "mel",
                                           {made.samples, made.source->features(data::Part::test)}));
        made.kept = model.build(builder, *made.source, data::Part::test, windows).kept;
    };
    MILLRACE_SET(made.trained, TrainedModel::create(request, std::move(detecting), "classify", declare, build));
    MILLRACE_TRY(made.source->upload(made.trained->store()));
    for (tensor::View& view : made.kept) {
        view.offset += static_cast<std::int64_t>(request.member) * view.stride_k;
        view.k = 1;
    }
    made.rules = model.rules(data::Part::test, static_cast<int>(request.member));
    return made;
}

/// The votes of every recording, one after the other.
std::vector<double> votes_by(const Detector& detector, const Batch& batch) {
    if (detector.samples.present())
        detector.trained->store().write(detector.samples, batch.samples);
    else
        detector.source->write_features(detector.trained->store(), data::Part::test, batch.features);
    tape::Program& program = detector.trained->program();
    program.run();
    const std::vector<double> logits = program.read(detector.kept[0]), leak = program.read(detector.kept[1]);
    const std::size_t classes = logits.size() / leak.size();
    std::vector<double> windows;
    for (std::size_t i = 0; i < leak.size(); ++i)
        windows.push_back(window_probability(logits.data() + i * classes, classes, leak[i], detector.rules));
    return votes_of(windows, detector.rules);
}

/// The row of a recording that was read.
std::vector<io::Cell> row_of(const std::string& path, const double* votes, const Detector& detector, const Heard& heard,
                             bool& found) {
    const auto count = static_cast<std::size_t>(detector.rules.votes);
    const double threshold = *detector.rules.threshold;
    found = decides(votes, count, threshold);
    double sum = 0;
    std::string each;
    for (std::size_t i = 0; i < count; ++i) {
        sum += votes[i];
        each += fmt::format("{}{:.4f}", i == 0 ? "" : ",", votes[i]);
    }
    const auto above = std::count_if(votes, votes + count, [&](double vote) { return vote >= threshold; });
    const char* note = heard.fit == data::Fit::padded ? "shorter than 10 s"
                       : heard.fit == data::Fit::cut  ? "longer than 10 s"
                                                      : "";
    return {path,
            std::int64_t{found},
            sum / static_cast<double>(count),
            static_cast<double>(above) / static_cast<double>(count),
            fmt::format("[{}]", each),
            note};
}

}  // namespace

base::Result<ClassifyReport> classify_sounds(const ClassifyRequest& request) {
    MILLRACE_LET(files, data::find_files(request.in, data::kSoundEndings, "WAV or FLAC file"));
    MILLRACE_LET(stored, stored_recordings(request.checkpoint));
    MILLRACE_LET(detector, make_detector(request, stored));
    ClassifyReport report;
    report.device = detector.trained->device();
    const auto begin = std::chrono::steady_clock::now();
    data::Resamplers resamplers(data::kSoundRate);
    const bool sounds = detector.samples.present();
    Batch batch{std::vector<float>(sounds ? kBatch * data::kSoundSamples : 0),
                std::vector<std::uint16_t>(sounds ? 0 : kBatch * data::kRecordingMels)};
    std::uint64_t positives = 0;
    MILLRACE_TRY(request.rows.begin(columns_of(stored.classes), files.size(), 1));
    for (std::size_t first = 0; first < files.size(); first += kBatch) {
        std::vector<Heard> heard(std::min(kBatch, files.size() - first));
        hear(files, first, resamplers, stored.classes.repeats, heard, batch);
        const std::vector<double> votes = votes_by(detector, batch);
        MILLRACE_TRY(detector.trained->check());
        for (std::size_t i = 0; i < heard.size(); ++i) {
            const std::string path = files[first + i].string();
            const std::span own = std::span(votes).subspan(i * data::kLongs, data::kLongs);
            if (heard[i].error.empty() && !std::ranges::all_of(own, [](double vote) { return std::isfinite(vote); }))
                heard[i].error = "the model's answer is not a number; samples far beyond full scale have no finite features";
            bool found = false;
            std::vector<io::Cell> row{path, {}, {}, {}, {}, "error: " + heard[i].error};
            if (heard[i].error.empty()) row = row_of(path, own.data(), detector, heard[i], found);
            const auto* mean = std::get_if<double>(&row[2]);
            const float value = mean != nullptr ? static_cast<float>(*mean) : std::numeric_limits<float>::quiet_NaN();
            MILLRACE_TRY(request.rows.add(row, std::span(&value, 1)));
            report.failed += heard[i].error.empty() ? 0 : 1;
            positives += found ? 1 : 0;
        }
        if (request.progress) request.progress(first + heard.size(), files.size());
    }
    report.files = files.size();
    report.seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
    report.summary = fmt::format(
        "{} of {} recordings are {} (half of {} votes at {:.2f} or more)", positives, files.size() - report.failed,
        stored.classes.names[static_cast<std::size_t>(stored.classes.positive)], data::kLongs, *detector.rules.threshold);
    return report;
}

}  // namespace millrace::models
