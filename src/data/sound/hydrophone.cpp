#include "data/sound/hydrophone.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <memory>
#include <nlohmann/json.hpp>
#include <numbers>
#include <vector>

#include "base/json.h"
#include "base/philox.h"
#include "base/result.h"
#include "data/makers.h"
#include "data/sound/sound_set.h"
#include "io/pending_file.h"
#include "io/sound_file.h"

namespace millrace::data {
namespace {

using Signal = std::vector<double>;
constexpr double kTurn = 2 * std::numbers::pi / kSoundRate;

double rms(const Signal& signal) {
    double sum = 0;
    for (const double value : signal) sum += value * value;
    return std::sqrt(sum / static_cast<double>(signal.size()));
}

void add(Signal& to, const Signal& part, double factor) {
    for (std::size_t i = 0; i < to.size(); ++i) to[i] += factor * part[i];
}

/// The parts of one recording. Numbers are drawn in order, noise from a counter of its own.
class Recording {
public:
    Recording(std::uint64_t seed, std::uint32_t label, std::uint32_t index) : seed_(seed), label_(label), index_(index) {}

    double between(double low, double high) {
        const std::uint32_t bits = base::random_bits(seed_, index_, label_, kNumbers, drawn_++);
        return low + (high - low) * static_cast<double>(base::uniform01(bits));
    }
    int whole(int below) { return static_cast<int>(between(0, below)); }
    bool chance(double probability) { return between(0, 1) < probability; }

    Signal noise() {
        const std::uint32_t source = kNoise + noises_++;
        Signal values(kSoundSamples);
        for (std::uint32_t block = 0; block < kSoundSamples / 4; ++block) {
            const base::Philox4 words = base::random_block(seed_, index_, label_, source, block);
            for (std::uint32_t pair = 0; pair < 2; ++pair) {
                const base::NormalPair two = base::normal_pair(words.v[2 * pair], words.v[2 * pair + 1]);
                values[4 * block + 2 * pair] = static_cast<double>(two.first);
                values[4 * block + 2 * pair + 1] = static_cast<double>(two.second);
            }
        }
        return values;
    }

    Signal ambient() {
        const double pole = between(0.90, 0.985), level = between(0.5, 1.5), floor = between(0.02, 0.15);
        Signal low = noise();
        double last = 0;
        for (double& value : low) value = last = pole * last + std::sqrt(1 - pole * pole) * value;
        for (double& value : low) value *= level;
        add(low, noise(), floor);
        return low;
    }

    /// Noise through a resonator, of RMS 1.
    Signal any_band(double lowest, double highest) {
        const double centre = between(lowest, highest), bandwidth = between(150, 600);
        const double radius = std::exp(-std::numbers::pi * bandwidth / kSoundRate);
        const double first = 2 * radius * std::cos(kTurn * centre), second = -radius * radius;
        Signal values = noise();
        double last = 0, before = 0;
        for (double& value : values) {
            value += first * last + second * before;
            before = last;
            last = value;
        }
        const double level = rms(values);
        for (double& value : values) value /= level;
        return values;
    }

    /// `partials` tones at multiples of a frequency, the k-th at 1/k, together of RMS `factor`.
    void add_hum(Signal& to, double lowest, double highest, int partials, double factor) {
        const double hertz = between(lowest, highest);
        Signal values(kSoundSamples);
        for (int k = 1; k <= partials; ++k) {
            const double phase = between(0, 2 * std::numbers::pi);
            for (std::uint32_t n = 0; n < kSoundSamples; ++n) values[n] += std::sin(kTurn * hertz * k * n + phase) / k;
        }
        add(to, values, factor / rms(values));
    }

    /// Rings that die away, each of a peak of 2 to 8.
    Signal rings(int count) {
        Signal values(kSoundSamples);
        for (int ring = 0; ring < count; ++ring) {
            const auto start = static_cast<std::uint32_t>(between(0, kSoundSamples - 1));
            const double hertz = between(300, 1800), decay = between(0.004, 0.030) * kSoundRate, peak = between(2, 8);
            const auto end = std::min<std::uint32_t>(kSoundSamples, start + static_cast<std::uint32_t>(8 * decay));
            for (std::uint32_t n = start; n < end; ++n) {
                const double since = n - start;
                values[n] += peak * std::exp(-since / decay) * std::sin(kTurn * hertz * since);
            }
        }
        return values;
    }

    double leak_level() { return std::pow(10, between(-14, 2) / 20); }

    Signal leak() {
        const double level = leak_level();
        Signal values = any_band(250, 1100);
        const double hertz = between(1, 9), depth = between(0.1, 0.5), phase = between(0, 2 * std::numbers::pi);
        for (std::uint32_t n = 0; n < kSoundSamples; ++n) values[n] *= level * (1 + depth * std::sin(kTurn * hertz * n + phase));
        if (chance(0.40)) add_hum(values, 20, 60, 4, between(0.5, 2));
        if (chance(0.25)) add(values, rings(1 + whole(5)), 1);
        return values;
    }

    Signal unclassified() {
        const double kind = between(0, 3), level = leak_level();
        Signal values(kSoundSamples);
        if (kind < 1) {
            add_hum(values, 70, 400, 1, level);
        } else if (kind < 2) {
            values = any_band(150, 1500);
            const double period = between(0.3, 1.5) * kSoundRate, open = between(0.2, 0.6) * period, start = between(0, period);
            for (std::uint32_t n = 0; n < kSoundSamples; ++n) values[n] *= std::fmod(n + start, period) < open ? level : 0;
        } else {
            add_hum(values, 70, 400, 6, level);
            add(values, rings(2), 1);
        }
        return values;
    }

private:
    static constexpr std::uint32_t kNumbers = 0x68796472, kNoise = kNumbers + 1;  // Philox operators of their own
    std::uint64_t seed_;
    std::uint32_t label_, index_;
    std::uint64_t drawn_ = 0;
    std::uint32_t noises_ = 0;
};

Status check_options(const HydrophoneOptions& options) {
    constexpr std::uint32_t most = 10'000'000;
    if (options.files == 0 || options.files > most)
        return Error{fmt::format("--files {}; 1 to {} would be right", options.files, most)};
    if (!(options.gain >= -200 && options.gain <= 0))
        return Error{fmt::format("--gain {}; -200 to 0 dB would be right", options.gain)};
    if (options.threads < 0 || options.threads > 1024)
        return Error{fmt::format("--threads {}; 0 to 1024 would be right", options.threads)};
    return base::ok();
}

nlohmann::ordered_json wav_identity(const HydrophoneOptions& options) {
    return {{"generator", "hydrophone-1 wav"}, {"seed", options.seed}, {"files", options.files}, {"gain", options.gain}};
}

}  // namespace

std::array<std::uint32_t, kHydrophoneClasses.size()> hydrophone_counts(std::uint32_t files) {
    std::array<std::uint32_t, kHydrophoneClasses.size()> counts{};
    counts[kHydrophoneLeak] = static_cast<std::uint32_t>(std::lround(files * kHydrophoneLeakShare));
    std::uint32_t left = files - counts[kHydrophoneLeak], classes = static_cast<std::uint32_t>(counts.size()) - 1;
    for (std::uint32_t label = 0; label < counts.size(); ++label) {
        if (label == kHydrophoneLeak) continue;
        counts[label] = left / classes;
        left -= counts[label];
        --classes;
    }
    return counts;
}

void draw_recording(std::uint64_t seed, std::uint32_t label, std::uint32_t index, double gain,
                    std::span<float, kSoundSamples> samples) {
    MILLRACE_ASSERT(label < kHydrophoneClasses.size(), "a class of the set");
    Recording recording(seed, label, index);
    Signal signal = recording.ambient();
    const double level = rms(signal);
    switch (label) {
        case 1: add(signal, recording.rings(4 + recording.whole(40)), level); break;
        case kHydrophoneLeak: add(signal, recording.leak(), level); break;
        case 3: recording.add_hum(signal, 20, 60, 4, level * recording.between(0.5, 2)); break;
        case 4: add(signal, recording.unclassified(), level); break;
        default: break;
    }
    double peak = 0;
    for (const double value : signal) peak = std::max(peak, std::abs(value));
    const double factor = 0.9 / peak * std::pow(10, gain / 20);
    std::ranges::transform(signal, samples.begin(), [&](double value) { return static_cast<float>(value * factor); });
}

SoundSource hydrophone_source(const HydrophoneOptions& options) {
    SoundSource source;
    source.classes.assign(kHydrophoneClasses.begin(), kHydrophoneClasses.end());
    const auto counts = hydrophone_counts(options.files);
    auto indices = std::make_shared<std::vector<std::uint32_t>>();
    for (std::uint32_t label = 0; label < counts.size(); ++label)
        for (std::uint32_t index = 0; index < counts[label]; ++index) {
            source.items.push_back({fmt::format("{0}/{0}-{1:05}.wav", kHydrophoneClasses[label], index), label});
            indices->push_back(index);
        }
    const auto labels = std::make_shared<const std::vector<SoundSource::Item>>(source.items);
    source.read = [indices, labels, seed = options.seed, gain = options.gain](
                      std::size_t i, std::span<float, kSoundSamples> samples) -> Result<Fit> {
        draw_recording(seed, (*labels)[i].label, (*indices)[i], gain, samples);
        return Fit::exact;
    };
    source.identity =
        base::json_text(nlohmann::ordered_json{{"generator", "hydrophone-1"}, {"files", options.files}, {"gain", options.gain}});
    return source;
}

Result<SoundSetReport> make_hydrophone(const Path& folder, const HydrophoneOptions& options, const CommandProgress& progress) {
    MILLRACE_TRY(check_options(options));
    SoundSetOptions set;
    set.seed = options.seed;
    set.positive = options.binary ? kHydrophoneClasses[kHydrophoneLeak] : "";
    set.waveform = options.waveform;
    set.threads = options.threads;
    return make_sound_set(folder, hydrophone_source(options), set, progress);
}

Result<MakeOutcome> make_hydrophone_wav(const Path& folder, const HydrophoneOptions& options, const CommandProgress& progress) {
    MILLRACE_TRY(check_options(options));
    if (options.binary || options.waveform)
        return Error{"--wav writes recordings of all classes: --binary and --waveform are not for it"};
    const nlohmann::ordered_json made = wav_identity(options);
    MILLRACE_TRY(io::StagedFolder::finish_publishing(folder, kDescription));
    MILLRACE_LET(described, made_before(folder, made));
    if (!described.is_null()) return MakeOutcome::kAlreadyThere;
    std::error_code failure;
    for (const char* name : kHydrophoneClasses)
        if (std::filesystem::exists(folder / name, failure)) return foreign_set(folder / name);

    StopRequests stop;
    MILLRACE_LET(staged, io::StagedFolder::begin(folder));
    const SoundSource source = hydrophone_source(options);
    for (const std::string& name : source.classes) std::filesystem::create_directory(staged.inside() / name, failure);
    const auto format = options.gain == 0 ? io::WavFormat::pcm16 : io::WavFormat::f32;
    const auto write = [&](std::uint32_t i) -> Status {
        std::vector<float> samples(kSoundSamples);
        MILLRACE_TRY(source.read(i, std::span<float, kSoundSamples>(samples)));
        return io::write_wav(staged.inside() / source.items[i].name, samples, kSoundRate, format);
    };
    MILLRACE_TRY(for_all_items(static_cast<std::uint32_t>(source.items.size()), options.threads, stop, progress, write));
    const nlohmann::ordered_json description{{"name", folder_name(folder)}, {"classes", source.classes}, {"made", made}};
    MILLRACE_TRY(io::write_atomically(staged.inside() / kDescription, base::json_text(description, 2) + "\n"));
    if (stop.asked()) return stop.error();
    MILLRACE_TRY(staged.publish(kDescription));
    return MakeOutcome::kWritten;
}

}  // namespace millrace::data
