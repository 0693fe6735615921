#include "data/sound/sound_set.h"

#include <fmt/chrono.h>
#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <chrono>
#include <cmath>
#include <memory>
#include <nlohmann/json.hpp>

#include "base/json.h"
#include "base/nearest.h"
#include "base/philox.h"
#include "base/units.h"
#include "data/sound/resample.h"
#include "io/checksum.h"
#include "io/hdf5.h"
#include "io/pending_file.h"
#include "io/sound_file.h"

namespace millrace::data {
namespace {

using Json = nlohmann::ordered_json;
constexpr int kMostThreads = 1024;
constexpr std::size_t kMostSoundClasses = 32'767;  // labels are i16

Json made_by(const SoundSource& source, const SoundSetOptions& options) {
    return {{"builder", "sound-1"},         {"source", base::ordered_json_or_throw(source.identity)},
            {"split", options.shares},      {"seed", options.seed},
            {"positive", options.positive}, {"waveform", options.waveform}};
}

/// Whether the folder holds this very set, by its description and the sizes of its files. Any of its names otherwise is refused.
Result<bool> already_there(const Path& folder, const Json& made, SoundSetReport& report) {
    std::error_code failure;
    MILLRACE_LET(json, made_before(folder, made));
    if (!json.is_null()) {
        const auto files = json.value("files", nlohmann::json());
        if (!files.is_object()) return foreign_set(folder / kDescription);
        for (const auto& [name, size] : files.items())
            if (nlohmann::json(std::filesystem::file_size(folder / name, failure)) != size) return foreign_set(folder / name);
        try {
            report.classes = json.value("classes", report.classes);
            report.counts = json.value("recordings", report.counts);
        } catch (const nlohmann::json::exception&) {
            return foreign_set(folder / kDescription);
        }
        report.outcome = MakeOutcome::kAlreadyThere;
        return true;
    }
    for (const char* name : {kRecordingFiles[0], kRecordingFiles[1], kRecordingFiles[2], kRecordingList})
        if (std::filesystem::exists(folder / name, failure)) return foreign_set(folder / name);
    return false;
}

Status check_source(const SoundSource& source, const SoundSetOptions& options) {
    if (options.threads < 0 || options.threads > kMostThreads)
        return Error{fmt::format("--threads {}; 0 to {} would be right", options.threads, kMostThreads)};
    if (source.items.empty()) return Error{"there is no recording to make a set of"};
    if (source.classes.size() < 2)
        return Error{fmt::format("there is one class, {}; at least two class folders with recordings would be right",
                                 source.classes.front())};
    if (source.classes.size() > kMostSoundClasses)
        return Error{fmt::format("there are {} classes; at most {} would be right", source.classes.size(), kMostSoundClasses)};
    if (!options.positive.empty() && std::ranges::find(source.classes, options.positive) == source.classes.end()) {
        const std::string nearest = base::nearest_name(options.positive, source.classes);
        return Error{fmt::format("--positive {} is no class{}; the classes are {}", options.positive,
                                 nearest.empty() ? "" : fmt::format(" (did you mean {}?)", nearest),
                                 fmt::join(source.classes, ", "))};
    }
    return base::ok();
}

std::string first_reason(const TransformedRecordings& all) {
    return all.skipped.empty() ? "" : fmt::format("; {}: {}", all.skipped.front().name, all.skipped.front().reason);
}

Status check_parts(const SoundSource& source, const TransformedRecordings& all, const std::vector<std::uint32_t>& labels,
                   std::span<const std::vector<std::uint32_t>, kSoundParts> parts, const Shares& shares) {
    if (all.items.empty())
        return Error{fmt::format("none of {} recordings could be read{}", source.items.size(), first_reason(all))};
    for (std::uint32_t label = 0; label < source.classes.size(); ++label)
        if (std::ranges::find(labels, label) == labels.end())
            return Error{fmt::format("no recording of class {} could be read{}; repair them, or remove the folder",
                                     source.classes[label], first_reason(all))};
    for (std::size_t part = 0; part < kSoundParts; ++part)
        if (shares[part] > 0 && parts[part].empty())
            return Error{
                fmt::format("{} would be empty: no class has enough recordings for its share of {:g}; more recordings, or a "
                            "share of 0 in --split, would be right",
                            kRecordingFiles[part], shares[part])};
    return base::ok();
}

SoundSetTexts texts_of(const std::vector<std::string>& names, const SoundSource& source, const SoundSetOptions& options,
                       const Json& made) {
    const Json config{{"sample_rate", kSoundRate},
                      {"duration_sec", kSoundSeconds},
                      {"long_window", kLongWindow},
                      {"short_window", kShortWindow},
                      {"n_mels", kMelBands},
                      {"n_fft", kShortWindow},
                      {"hop_length", 128},
                      {"power", 1.0},
                      {"long_scale_sec", static_cast<double>(kLongWindow) / kSoundRate},
                      {"short_points", kShortWindow},
                      {"center", false},
                      {"positive", options.positive},
                      {"repeat", source.repeat},
                      {"made", made}};
    Json numbers = Json::object();
    for (std::size_t label = 0; label < names.size(); ++label) numbers[names[label]] = label;
    const auto now = std::chrono::system_clock::to_time_t(std::chrono::system_clock::now());
    return {{"config_json", base::json_text(config)},
            {"labels_json", base::json_text(Json(names))},
            {"label2id_json", base::json_text(numbers)},
            {"created_at_utc", fmt::format("{:%Y-%m-%dT%H:%M:%SZ}", fmt::gmtime(now))}};
}

constexpr double kSecondsRead = kSoundSeconds + 1;  // what the last samples are interpolated from lies within

/// Another sum when a file was added, removed, renamed or written to.
std::string checksum_of(const std::vector<ClassFile>& files) {
    std::string listed;
    for (const ClassFile& file : files) listed += fmt::format("{}\n{} {} {}\n", file.name, file.label, file.bytes, file.modified);
    io::Checksum64 sum;
    sum.update(io::bytes_of(listed));
    return fmt::format("{:016x}", sum.value());
}

}  // namespace

base::Result<Shares> parse_shares(const std::string& text) {
    const base::Error wrong{
        fmt::format("--split {}: three shares of sum 1 would be right, the first above 0: --split 0.7,0.2,0.1", text)};
    Shares shares{};
    std::string_view rest = text;
    for (std::size_t part = 0; part < kSoundParts; ++part) {
        const std::size_t comma = rest.find(',');
        if ((comma == std::string_view::npos) != (part + 1 == kSoundParts)) return wrong;
        const std::string_view word = base::trimmed(rest.substr(0, comma));
        const auto [end, problem] = std::from_chars(word.data(), word.data() + word.size(), shares[part]);
        if (problem != std::errc{} || end != word.data() + word.size() || !(shares[part] >= 0)) return wrong;
        rest = comma == std::string_view::npos ? std::string_view{} : rest.substr(comma + 1);
    }
    if (!(shares[0] > 0) || !(std::abs(shares[0] + shares[1] + shares[2] - 1) < 1e-6)) return wrong;
    return shares;
}

std::array<std::uint32_t, kSoundParts> share_out(std::uint32_t count, const Shares& shares) {
    std::array<std::uint32_t, kSoundParts> given{};
    std::uint32_t left = count;
    for (std::size_t part = 0; part < kSoundParts; ++part) {
        given[part] = std::min(left, static_cast<std::uint32_t>(std::floor(count * shares[part] + 1e-9)));
        left -= given[part];
    }
    for (; left > 0; --left) {
        std::size_t most = 0;
        for (std::size_t part = 1; part < kSoundParts; ++part)
            if (count * shares[part] - given[part] > count * shares[most] - given[most] + 1e-9) most = part;
        ++given[most];
    }
    for (std::size_t part = 0; part < kSoundParts; ++part) {
        if (given[part] > 0 || shares[part] == 0) continue;
        // From the part that has most, as long as it keeps one; training is served first, so it gives last.
        const auto largest = static_cast<std::size_t>(std::ranges::max_element(given) - given.begin());
        const std::uint32_t kept = part < largest ? 0 : 1;
        if (given[largest] <= kept) continue;
        --given[largest];
        ++given[part];
    }
    return given;
}

std::array<std::vector<std::uint32_t>, kSoundParts> split_recordings(std::span<const std::uint32_t> labels, std::uint32_t classes,
                                                                     const Shares& shares, std::uint64_t seed) {
    std::vector<std::vector<std::uint32_t>> by_class(classes);
    for (std::uint32_t i = 0; i < labels.size(); ++i) by_class[labels[i]].push_back(i);
    std::array<std::vector<std::uint32_t>, kSoundParts> ordered, mixed;
    for (std::uint32_t label = 0; label < classes; ++label) {
        const auto count = static_cast<std::uint32_t>(by_class[label].size());
        const base::Shuffle order = base::make_shuffle(seed, label + kSoundParts, count);
        const auto given = share_out(count, shares);
        std::uint32_t position = 0;
        for (std::size_t part = 0; part < kSoundParts; ++part)
            for (std::uint32_t i = 0; i < given[part]; ++i)
                ordered[part].push_back(by_class[label][base::shuffled_index(order, position++)]);
    }
    for (std::uint32_t part = 0; part < kSoundParts; ++part) {
        const auto count = static_cast<std::uint32_t>(ordered[part].size());
        const base::Shuffle order = base::make_shuffle(seed, part, count);
        for (std::uint32_t i = 0; i < count; ++i) mixed[part].push_back(ordered[part][base::shuffled_index(order, i)]);
    }
    return mixed;
}

Result<SoundSetReport> make_sound_set(const Path& folder, const SoundSource& source, const SoundSetOptions& options,
                                      const CommandProgress& progress) {
    if (!io::have_hdf5())
        return Error{"this millrace was built without HDF5: install Debian's libhdf5-dev and libdeflate-dev and build again"};
    MILLRACE_TRY(check_source(source, options));
    SoundSetReport report;
    report.classes =
        options.positive.empty() ? source.classes : std::vector<std::string>{"NO" + options.positive, options.positive};
    const Json made = made_by(source, options);
    MILLRACE_TRY(io::StagedFolder::finish_publishing(folder, kDescription));
    MILLRACE_LET(complete, already_there(folder, made, report));
    if (complete) return report;

    StopRequests stop;
    MILLRACE_LET(staged, io::StagedFolder::begin(folder));
    MILLRACE_LET(all, transform_recordings(source, options.threads, stop, progress));
    std::vector<std::uint32_t> labels;
    std::vector<std::int16_t> written;
    for (const std::uint32_t item : all.items) {
        labels.push_back(source.items[item].label);
        const bool positive = source.classes[labels.back()] == options.positive;
        written.push_back(static_cast<std::int16_t>(options.positive.empty() ? labels.back() : std::uint32_t{positive}));
    }
    const auto parts = split_recordings(labels, static_cast<std::uint32_t>(source.classes.size()), options.shares, options.seed);
    MILLRACE_TRY(check_parts(source, all, labels, parts, options.shares));

    const BandStatistics bands = measure_bands(all, parts[0]);
    const SoundSetTexts texts = texts_of(report.classes, source, options, made);
    Json sizes = Json::object();
    for (std::size_t part = 0; part < kSoundParts; ++part) {
        report.counts[part] = parts[part].size();
        if (parts[part].empty()) continue;
        const Path path = staged.inside() / kRecordingFiles[part];
        MILLRACE_TRY(write_sound_part(path, source, all, parts[part], written, bands, texts, options, stop));
        sizes[kRecordingFiles[part]] = std::filesystem::file_size(path);
    }
    MILLRACE_TRY(io::write_atomically(staged.inside() / kRecordingList, recording_list(source, all, parts)));
    const Json description{{"name", folder_name(folder)},
                           {"classes", report.classes},
                           {"recordings", report.counts},
                           {"files", sizes},
                           {"made", made}};
    MILLRACE_TRY(io::write_atomically(staged.inside() / kDescription, base::json_text(description, 2) + "\n"));
    if (stop.asked()) return stop.error();
    MILLRACE_TRY(staged.publish(kDescription));
    report.skipped = source.skipped;
    report.skipped.insert(report.skipped.end(), all.skipped.begin(), all.skipped.end());
    report.padded = all.padded;
    report.repeated = source.repeat;
    report.cut = all.cut;
    return report;
}

std::string summary_of(const Path& folder, const SoundSetReport& report) {
    std::string text = fmt::format("{} {}: {} training, {} validation and {} test recordings, labels {}", folder.string(),
                                   report.outcome == MakeOutcome::kWritten ? "written" : "holds this set already",
                                   report.counts[0], report.counts[1], report.counts[2], fmt::join(report.classes, ", "));
    if (report.padded + report.cut > 0)
        text += fmt::format("; {} shorter than {} s {}, {} longer cut", report.padded, kSoundSeconds,
                            report.repeated ? "repeated" : "padded", report.cut);
    const std::uint64_t all = report.counts[0] + report.counts[1] + report.counts[2];
    if (!report.repeated && 2 * report.padded > all)
        text +=
            "\n  most recordings are short, so that many windows are silence and vote on nothing; --repeat fills them with sound";
    if (!report.skipped.empty()) text += fmt::format("; {} skipped ({} says why)", report.skipped.size(), kRecordingList);
    return text;
}

Result<Fit> read_recording(const Path& path, Resamplers& resamplers, std::span<float, kSoundSamples> samples, bool repeat) {
    MILLRACE_LET(sound, io::read_sound(path, kSecondsRead));
    const auto resampler = resamplers.from(sound.rate);
    const std::vector<float> resampled = resampler->resample(sound.samples, kSoundSamples);
    for (std::size_t i = 0; i < samples.size(); ++i) {
        const bool within = i < resampled.size();
        samples[i] = within ? resampled[i] : repeat && !resampled.empty() ? samples[i - resampled.size()] : 0.0f;
    }
    const std::uint64_t whole = resampler->length(std::max<std::uint64_t>(sound.frames, sound.samples.size()));
    return whole < kSoundSamples ? Fit::padded : whole > kSoundSamples ? Fit::cut : Fit::exact;
}

Result<SoundSource> sound_source(const Path& root, bool repeat) {
    if (!io::can_read_sound()) return io::read_sound(root).error();
    MILLRACE_LET(found, find_class_files(root, kSoundEndings));
    if (found.files.empty())
        return Error{
            fmt::format("holds no recording ({} skipped, {} of other kinds); folders named by class with WAV or FLAC files in "
                        "them would be right: LEAK/a.wav, NORMAL/b.wav{}",
                        found.skipped.size(), found.others,
                        found.skipped.empty() ? "" : fmt::format("\n  {}: {}", found.skipped[0].name, found.skipped[0].reason)),
            root.string()};
    SoundSource source;
    source.classes = found.classes;
    source.skipped = found.skipped;
    source.repeat = repeat;
    nlohmann::ordered_json identity{{"recordings", found.files.size()}, {"checksum", checksum_of(found.files)}};
    if (repeat) identity["repeat"] = true;
    source.identity = base::json_text(identity);
    for (const ClassFile& file : found.files) source.items.push_back({file.name, file.label});
    auto files = std::make_shared<const std::vector<ClassFile>>(std::move(found.files));
    auto resamplers = std::make_shared<Resamplers>(kSoundRate);
    source.read = [files, resamplers, repeat](std::size_t i, std::span<float, kSoundSamples> samples) {
        return read_recording((*files)[i].path, *resamplers, samples, repeat);
    };
    return source;
}

}  // namespace millrace::data
