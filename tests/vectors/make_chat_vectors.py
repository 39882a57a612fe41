"""Write tests/vectors/chat.json with `apply_chat_template` of transformers, as a reference.

    python tests/vectors/make_chat_vectors.py

Requires transformers; written with 5.24.0 and jinja2 3.1.6. The templates write the formats of
Llama 3, Qwen2.5 and Mistral, and use what published templates use: tools, `tojson`, `namespace`,
`break`, `{% generation %}`, macros, white space control and `raise_exception`.
"""

import json
from pathlib import Path

from tokenizers import Tokenizer
from tokenizers.models import BPE
from transformers import PreTrainedTokenizerFast

PATH = Path(__file__).with_name("chat.json")

LLAMA_3 = """{{- bos_token }}
{%- macro turn(role, text) %}
    {{- '<|start_header_id|>' ~ role ~ '<|end_header_id|>\\n\\n' ~ text | trim ~ '<|eot_id|>' }}
{%- endmacro %}
{%- if not date_string is defined %}
    {%- set date_string = "26 Jul 2024" %}
{%- endif %}
{%- set system = messages[0].content if messages[0].role == 'system' else '' %}
{{- turn('system', 'Today Date: ' + date_string + '\\n\\n' + system) }}
{%- for message in messages if message.role != 'system' %}
    {%- if message.tool_calls %}
        {%- if message.tool_calls | length != 1 %}
            {{- raise_exception("one tool call at a time") }}
        {%- endif %}
        {%- set call = message.tool_calls[0].function %}
        {{- turn(message.role, {"name": call.name, "parameters": call.arguments} | tojson) }}
    {%- elif message.role == 'tool' %}
        {{- turn('ipython', message.content) }}
    {%- else %}
        {{- turn(message.role, message.content) }}
    {%- endif %}
{%- endfor %}
{%- if add_generation_prompt %}
    {{- '<|start_header_id|>assistant<|end_header_id|>\\n\\n' }}
{%- endif %}
"""

QWEN2 = """{%- set default = 'You are a helpful assistant.' %}
{%- set system = messages[0]['content'] if messages[0]['role'] == 'system' else default %}
{{- '<|im_start|>system\\n' + system }}
{%- if tools %}
    {{- "\\n\\n# Tools\\n<tools>" }}
    {%- for tool in tools %}
        {{- "\\n" + (tool | tojson) }}
    {%- endfor %}
    {{- "\\n</tools>" }}
{%- endif %}
{{- '<|im_end|>\\n' }}
{%- for message in messages %}
    {%- if message.role == "tool" %}
        {%- if loop.first or loop.previtem.role != "tool" %}
            {{- '<|im_start|>user' }}
        {%- endif %}
        {{- '\\n<tool_response>\\n' + message.content + '\\n</tool_response>' }}
        {%- if loop.last or loop.nextitem.role != "tool" %}
            {{- '<|im_end|>\\n' }}
        {%- endif %}
    {%- elif not (message.role == "system" and loop.first) %}
        {{- '<|im_start|>' + message.role }}
        {%- if message.content %}
            {{- '\\n' + message.content }}
        {%- endif %}
        {%- for call in message.tool_calls or [] %}
            {{- '\\n<tool_call>\\n' }}
            {{- call.function | default(call) | tojson }}
            {{- '\\n</tool_call>' }}
        {%- endfor %}
        {{- '<|im_end|>\\n' }}
    {%- endif %}
{%- endfor %}
{%- if add_generation_prompt %}
    {{- '<|im_start|>assistant\\n' }}
{%- endif %}
"""

MISTRAL = """{{ bos_token }}{% for message in messages %}
{% if (message['role'] == 'user') != (loop.index0 % 2 == 0) %}
{{ raise_exception('Roles must alternate') }}
{% endif %}
{% if message['role'] == 'user' %}
{{ '[INST] ' + message['content'] + ' [/INST]' }}
{% else %}
{{ message['content'] + eos_token}}
{% endif %}
{% endfor %}"""

# White space control as a file without "-" has it, a namespace, loop controls and a mark.
OTHERS = """
    {# a comment #}
{% set seen = namespace(count=0, roles=[]) %}
{% for message in messages %}
    {% if message.role == "system" %}
        {% continue %}
    {% endif %}
    {% if seen.count >= 2 %}
  stop{{ "!" * seen.count }}
        {% break %}
    {% endif %}
    {% set seen.count = seen.count + 1 %}
    {% set seen.roles = seen.roles + [message.role] %}
    {% generation %}
    {% set inner = message.content | upper %}
{{ loop.index }}: {{ inner }}
    {% endgeneration %}
    {{ inner is defined }}
{% endfor %}
{{ seen.roles | join("/") }} {{ messages[0] | tojson(indent=2) }} {{ dict(a=1) }}
{{ pad_token is defined }}{{ documents is none }}{{ extra | default("-") }}
{{ "<b>&" }} {{ '%s' | format(messages | length) }} {{ messages[-1].content[:3] }}
{{ messages | map(attribute="role") | unique | list }}{{ cls_token }}.

"""

WEATHER = {
    "type": "function",
    "function": {
        "name": "weather",
        "description": "Tells the weather <now> in a city & “suburbs”.",
        "parameters": {"type": "object", "properties": {"city": {"type": "string"}}},
    },
}
CALL = {"type": "function", "function": {"name": "weather", "arguments": {"city": "Zürich"}}}
SYSTEM = {"role": "system", "content": "  You are brief. "}
USER = {"role": "user", "content": "What's the weather in Zürich, <b>now</b>?\n"}
ANSWER = {"role": "assistant", "content": "It's sunny: 20 °C, 晴れ ☀️."}
CONVERSATIONS = [
    [USER],
    [SYSTEM, USER],
    [USER, ANSWER, {"role": "user", "content": "Thanks</s><|im_end|>"}],
    [SYSTEM, USER, ANSWER],
]
WITH_TOOLS = [
    SYSTEM,
    USER,
    {"role": "assistant", "content": None, "tool_calls": [CALL]},
    {"role": "tool", "content": '{"celsius": 20}'},
    ANSWER,
]

TEMPLATES = {
    "Llama 3": (LLAMA_3, {"bos_token": "<|begin_of_text|>", "eos_token": "<|eot_id|>"}),
    "Qwen2": (QWEN2, {"eos_token": "<|im_end|>", "pad_token": "<|endoftext|>"}),
    "Mistral": (MISTRAL, {"bos_token": "<s>", "eos_token": "</s>"}),
    "others": (OTHERS, {"cls_token": "[CLS]"}),
}


def main():
    cases = []
    for name, (template, tokens) in TEMPLATES.items():
        peer = PreTrainedTokenizerFast(tokenizer_object=Tokenizer(BPE()), **tokens)
        runs = [(messages, {}) for messages in CONVERSATIONS]
        if name in ("Llama 3", "Qwen2"):
            runs += [(WITH_TOOLS, {"tools": [WEATHER]}), ([USER], {"date_string": "1 Jan 2025"})]
        for messages, variables in runs:
            for prompts in (True, False):
                case = {"template": name, "messages": messages, "variables": variables}
                case["add_generation_prompt"] = prompts
                try:
                    case["text"] = peer.apply_chat_template(
                        messages,
                        chat_template=template,
                        add_generation_prompt=prompts,
                        tokenize=False,
                        **variables,
                    )
                except Exception as error:
                    case["error"] = str(error)
                cases.append(case)
    templates = {
        name: {"template": template, "special_tokens": tokens}
        for name, (template, tokens) in TEMPLATES.items()
    }
    content = {"templates": templates, "cases": cases}
    PATH.write_text(json.dumps(content, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
    print(PATH, PATH.stat().st_size, "bytes,", sum("error" in case for case in cases), "errors")


if __name__ == "__main__":
    main()
