#pragma once
// A folder with text pairs and their sentence vectors: pairs.safetensors (`input_embeddings` and `target_embeddings`, [n, d]
// f32), pairs.jsonl ({"input": "...", "target": "..."}, line i for row i) and, beside them, an optional dataset.json
// {"name": "pairs", "teacher": "hashed", "dimensions": 768} (each key optional).

#include <cstdint>
#include <string>
#include <vector>

#include "data/pairs/sentence_grammar.h"
#include "data/split.h"
#include "io/file.h"

namespace millrace::data {

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
    Split split;
    std::uint64_t checksum = 0;  ///< of the vectors and texts as they stand in the files
};

/// Loads and checks a folder: shapes, counts, finite vectors that are not zero, UTF-8 texts that are not empty. Rows whose length
/// is not 1 (to 1e-3) are scaled to it, with one warning. A set of the hashed teacher is checked against it. `validation` and
/// `split_seed` as for split_validation. Errors name the file and its line, or the tensor and its row.
base::Result<PairSet> load_pair_set(const io::Path& folder, double validation = 0.1, std::uint64_t split_seed = 42);

}  // namespace millrace::data
