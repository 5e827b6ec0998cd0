"""A planar arm of three links that reaches for a target: DeepMind Control's reacher with one more joint."""

from xml.etree import ElementTree

from dm_control.suite import common, reacher

_LINK = 0.09
"""Metres from one joint to the next, and from the last to the finger."""
_THICKNESS = 0.01
_BEND = 80
"""Limit in degrees, either way, of the second and third joint; the first turns freely."""


def three_link_arm() -> tuple[str, dict[str, bytes]]:
    """The model's XML and the assets it includes."""
    text, assets = reacher.get_model_and_assets()
    model = ElementTree.fromstring(text)
    world, motors = model.find("worldbody"), model.find("actuator")
    assert world is not None and motors is not None
    arm = world.find("body[@name='arm']")
    assert arm is not None, "the suite's reacher has an arm"
    # The new arm takes the old one's place, so that the bodies keep the suite's order.
    place = list(world).index(arm)
    world.remove(arm)
    world.insert(place, _arm())
    # A motor per joint of the new arm instead of the old two.
    for motor in list(motors):
        motors.remove(motor)
    for joint in ("shoulder0", "shoulder1", "wrist"):
        ElementTree.SubElement(motors, "motor", name=joint, joint=joint)
    return ElementTree.tostring(model, encoding="unicode"), assets or common.ASSETS


def _arm() -> ElementTree.Element:
    """Three links in a row with a finger at their end."""
    first = _link("arm0", "shoulder0", f"0 0 {_THICKNESS}", _LINK, bend=None)
    second = _link("arm1", "shoulder1", f"{_LINK} 0 0", _LINK, bend=_BEND)
    # The hand reaches to where the finger ends.
    hand = _link("hand", "wrist", f"{_LINK} 0 0", _LINK + _THICKNESS, bend=_BEND)
    finger = ElementTree.SubElement(hand, "body", name="finger", pos=f"{_LINK} 0 0")
    ElementTree.SubElement(finger, "camera", name="hand", pos="0 0 .2", mode="track")
    size = str(_THICKNESS)
    ElementTree.SubElement(finger, "geom", name="finger", type="sphere", size=size, material="effector")
    second.append(hand)
    first.append(second)
    return first


def _link(name: str, joint: str, position: str, length: float, bend: int | None) -> ElementTree.Element:
    body = ElementTree.Element("body", name=name, pos=position)
    shape = {"type": "capsule", "fromto": f"0 0 0 {length} 0 0", "size": str(_THICKNESS), "material": "self"}
    ElementTree.SubElement(body, "geom", {"name": name, **shape})
    limits = {} if bend is None else {"limited": "true", "range": f"{-bend} {bend}"}
    ElementTree.SubElement(body, "joint", {"name": joint, **limits})
    return body
