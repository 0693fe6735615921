#pragma once
// What a run forgot, as lines for people, as JSON and as a picture.

#include <string>

#include "models/forgetting.h"

namespace millrace::models {

/// Losses and perplexities by stage and domain, forgetting by group, and a line for every comparison. Several lines.
std::string forgetting_text(const Course& course, const Forgetting& measured);

/// continual.json (docs/continual.md). Losses that are not finite are null.
std::string forgetting_json(const Course& course, const Forgetting& measured);

/// The loss of every domain over the epochs: a panel for each domain, a line for each group. Self-contained SVG.
std::string forgetting_svg(const Course& course, const Forgetting& measured);

}  // namespace millrace::models
