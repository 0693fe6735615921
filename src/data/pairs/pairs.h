#pragma once
// A folder with text pairs and their sentence vectors: pairs.safetensors (`input_embeddings` and `target_embeddings`, [n, d]
// f32), pairs.jsonl ({"input": "...", "target": "..."}, line i for row i) and, beside them, an optional dataset.json
// {"name": "pairs", "teacher": "hashed", "dimensions": 768} (each key optional).

#include <cstdint>
#include <string>
#include <vector>

#include "data/sample_set.h"
#include "io/file.h"

namespace millrace::data {

struct TextPair {
    std::string input, target;
    bool operator==(const TextPair&) const = default;
};

/// English sentence pairs, statement and consequence, from a small grammar. Every part of a statement (who, what, where, when)
/// has its own effect in the consequence, so the mapping can be learned word by word and a held-out pair is a new combination of
/// known parts. A pair is a pure function of (seed, index): the same on every machine. Indices run from 0 to one less than this;
/// all of them give different statements and different consequences.
std::uint32_t sentence_pair_limit();

/// Pair `index` of the order that `seed` draws. The templates take turns.
TextPair sentence_pair(std::uint64_t seed, std::uint32_t index);

inline constexpr const char* kPairVectors = "pairs.safetensors";
inline constexpr const char* kPairTexts = "pairs.jsonl";
inline constexpr const char* kInputVectors = "input_embeddings";
inline constexpr const char* kTargetVectors = "target_embeddings";
inline constexpr std::size_t kPairLineCap = std::size_t{64} << 10;  ///< bytes of a line of pairs.jsonl

struct PairSet {
    std::string name;     ///< from dataset.json, else the folder's name
    std::string teacher;  ///< from dataset.json: kHashedTeacher (data/teacher.h), the name of a model, or empty when not said
    std::uint32_t count = 0;
    std::uint32_t dimensions = 0;
    std::vector<float> inputs, targets;  ///< [count, dimensions], rows of length 1
    std::vector<TextPair> texts;         ///< [count]
    Parts parts;                         ///< no test
    std::uint64_t checksum = 0;          ///< of the vectors and texts as they stand in the files

    [[nodiscard]] std::vector<std::int32_t>& part(Part part) { return parts[index_of(part)]; }
    [[nodiscard]] const std::vector<std::int32_t>& part(Part part) const { return parts[index_of(part)]; }
};

/// Loads and checks a folder: shapes, counts, finite vectors that are not zero, UTF-8 texts that are not empty. Rows whose length
/// is not 1 (to 1e-3) are scaled to it, with one warning. A set of the hashed teacher is checked against it. `validation` and
/// `split_seed` as for split_samples. Errors name the file and its line, or the tensor and its row.
base::Result<PairSet> load_pair_set(const io::Path& folder, double validation = 0.1, std::uint64_t split_seed = 42);

}  // namespace millrace::data
