#pragma once
// Text in, text out: the text bridge and the cube of a run's best weights.

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "base/result.h"
#include "io/file.h"

namespace millrace::train {

struct Answer {
    std::string text, answer;
    std::int32_t tokens = 0, unknown = 0;  ///< of the text; those that the training text never had
    std::optional<double> cosine;          ///< of the surface with the nearest target set aside; absent without the data
    std::string nearest;                   ///< that target's text
};

struct AnswerReport {
    std::string run, model, preset, device;
    std::uint64_t step = 0;  ///< the weights are those after this step
    std::vector<Answer> answers;
    double seconds = 0;  ///< of the answering itself
};

struct AnswerRequest {
    std::vector<std::string> texts;
    std::string device, data_path;  ///< replace what the recipe says unless empty
    bool nearest = false;           ///< look for the nearest target: needs the data
};

/// Refuses a run without a text bridge, and texts that are empty, wholly unknown or longer than any sentence the bridge has seen.
/// Needs nothing but the run, unless the nearest target is asked for; data that cannot be loaded then leaves it out, with a
/// warning.
base::Result<AnswerReport> answer_texts(const io::Path& run, const AnswerRequest& request);

}  // namespace millrace::train
