// Reading a reply with llama.cpp's parser of its chat format. Only for the
// files of this module that see its headers.
#ifndef EVERWARM_MODELS_PEG_REPLY_SYNTAX_H_
#define EVERWARM_MODELS_PEG_REPLY_SYNTAX_H_

#include <memory>

#include "chat.h"
#include "models/chat_prompt.h"

namespace everwarm::models {

std::shared_ptr<const ReplySyntax> MakePegReplySyntax(
    common_chat_parser_params params);

}  // namespace everwarm::models

#endif  // EVERWARM_MODELS_PEG_REPLY_SYNTAX_H_
