#include "data/pairs/make_pairs.h"

#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "data/pairs/pairs.h"
#include "data/pairs/teacher.h"
#include "io/safetensors.h"

namespace millrace::data {
namespace {

/// A file that is made in memory.
class Poured final : public io::ByteSink {
public:
    Status write(io::Bytes bytes) override {
        text_.append(reinterpret_cast<const char*>(bytes.data()), bytes.size());
        return base::ok();
    }
    [[nodiscard]] const std::string& text() const { return text_; }

private:
    std::string text_;
};

constexpr std::uint64_t kMostBytes = std::uint64_t{4} << 30;  // of both tensors: they are made in memory

struct Files {
    std::string vectors, texts, description;
};

Status append_vector(std::vector<float>& all, const std::string& text, std::uint32_t dimensions) {
    MILLRACE_LET(vector, teach(text, dimensions));
    all.insert(all.end(), vector.begin(), vector.end());
    return base::ok();
}

Result<Files> make_files(const PairsOptions& options) {
    Files files;
    std::vector<float> inputs, targets;
    for (std::uint32_t index = 0; index < options.count; ++index) {
        const TextPair pair = sentence_pair(options.seed, index);
        files.texts += nlohmann::ordered_json{{"input", pair.input}, {"target", pair.target}}.dump() + "\n";
        MILLRACE_TRY(append_vector(inputs, pair.input, options.dimensions));
        MILLRACE_TRY(append_vector(targets, pair.target, options.dimensions));
    }
    const std::vector<std::int64_t> shape{options.count, options.dimensions};
    const io::TensorView tensors[] = {io::float_tensor(kInputVectors, shape, inputs),
                                      io::float_tensor(kTargetVectors, shape, targets)};
    Poured vectors;
    MILLRACE_TRY(io::write_safetensors(vectors, tensors, {}, kPairVectors));
    files.vectors = vectors.text();
    const nlohmann::ordered_json made{
        {"generator", "pairs-1"}, {"seed", options.seed}, {"count", options.count}, {"dimensions", options.dimensions}};
    files.description =
        nlohmann::ordered_json{{"name", "pairs"}, {"teacher", kHashedTeacher}, {"dimensions", options.dimensions}, {"made", made}}
            .dump(2) +
        "\n";
    return files;
}

/// Whether `path` holds exactly `text`; an error when it holds something else.
Result<bool> is_there(const Path& path, const std::string& text) {
    std::error_code missing;
    if (!std::filesystem::exists(path, missing)) return false;
    const auto old = io::read_text(path, text.size());
    if (!old.ok() || *old != text) return foreign_set(path);
    return true;
}

}  // namespace

Result<MakeOutcome> make_pairs(const Path& folder, const PairsOptions& options) {
    if (options.count == 0 || options.count > sentence_pair_limit())
        return Error{fmt::format("{} pairs; 1 to {} would be right", options.count, sentence_pair_limit())};
    if (const std::uint64_t bytes = std::uint64_t{options.count} * options.dimensions * 2 * sizeof(float); bytes > kMostBytes)
        return Error{fmt::format("{} pairs of {} dimensions are {:.1f} GiB; fewer of either, at most {} GiB, would be right",
                                 options.count, options.dimensions, static_cast<double>(bytes) / (1 << 30), kMostBytes >> 30)};
    MILLRACE_LET(files, make_files(options));
    std::error_code failure;
    std::filesystem::create_directories(folder, failure);
    if (failure) return io::system_error("cannot create the folder", folder, failure.value());
    const std::pair<Path, const std::string*> wanted[] = {{folder / kPairVectors, &files.vectors},
                                                          {folder / kPairTexts, &files.texts},
                                                          {folder / kDescription, &files.description}};
    std::vector<bool> there;
    for (const auto& [path, text] : wanted) {
        MILLRACE_LET(same, is_there(path, *text));
        there.push_back(same);
    }
    if (std::ranges::find(there, false) == there.end()) return MakeOutcome::kAlreadyThere;
    for (std::size_t i = 0; i < there.size(); ++i)
        if (!there[i]) MILLRACE_TRY(io::write_atomically(wanted[i].first, *wanted[i].second));
    return MakeOutcome::kWritten;
}

}  // namespace millrace::data
